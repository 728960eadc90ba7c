// Runs a job whose net has layers that exchanges take and refuse: a convolution, inner products of
// four kinds, a shared and a frozen param.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/simulate/cluster.h"
#include "shoal/simulate/simulation.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/solver_rig.h"

namespace shoal::test {

inline constexpr int kBatch = 8;              // of all workers together
inline constexpr double kScale = 0.00390625;  // of pixels

inline constexpr const char* kNet = R"(
  layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
    convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'gaussian' std: 0.3 } } }
  layer { name: 'frozen' type: 'InnerProduct' bottom: 'conv' top: 'frozen' param { lr_mult: 0 } param { lr_mult: 2 }
    inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
  layer { name: 'tanh' type: 'TanH' bottom: 'frozen' top: 'tanh' }
  layer { name: 'shared' type: 'InnerProduct' bottom: 'tanh' top: 'shared' param { name: 'w' } param { name: 'b' }
    inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
  layer { name: 'again' type: 'InnerProduct' bottom: 'shared' top: 'again' param { name: 'w' } param { name: 'b' }
    inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
  layer { name: 'turned' type: 'InnerProduct' bottom: 'again' top: 'turned' param { lr_mult: 1 decay_mult: 0.5 } param { lr_mult: 2 }
    inner_product_param { num_output: 12 transpose: true weight_filler { type: 'xavier' } } }
  layer { name: 'cut' type: 'Reshape' bottom: 'turned' top: 'cut' reshape_param { shape { dim: 0 dim: 3 dim: 4 } } }
  layer { name: 'deep' type: 'InnerProduct' bottom: 'cut' top: 'deep'
    inner_product_param { num_output: 5 axis: 2 weight_filler { type: 'xavier' } } }
  layer { name: 'still' type: 'InnerProduct' bottom: 'deep' top: 'still' param { lr_mult: 1 } param { lr_mult: 0 }
    inner_product_param { num_output: 6 weight_filler { type: 'xavier' } } }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'still' top: 'ip'
    inner_product_param { num_output: 4 bias_term: false weight_filler { type: 'xavier' } } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
)";

class ExchangeJob : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    records_ = fresh_directory("exchange") + "/records";
    make_digits(records_);
  }
  static SolverParameter job(int nets, const std::string& words) {
    SolverParameter param = parse_solver(
        "lr_policy: 'inv' gamma: 0.01 power: 0.75 max_iter: 1000 display: 0 random_seed: 3 "
        "snapshot_after_train: false " +
            words,
        "job");
    *param.mutable_net_param() = parse_net(
        str("layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { scale: ",
            kScale, " } data_param { source: '", records_, "' backend: DATUMFILE batch_size: ",
            kBatch / nets, " shared_file_system: true } }", kNet),
        "job.prototxt");
    return param;
  }
  // The fields of a solver that two workers refuse, and why.
  struct Refusal {
    const char *words, *says;
    const char* scheme = "bsp";
  };
  static void expect(const Refusal& one) {
    const JobResult result =
        train(job(2, str("type: 'SGD' base_lr: 0.01 momentum: 0.9 ", one.words)),
              {.workers = 2, .scheme = one.scheme});
    EXPECT_FALSE(result.ok()) << one.words;
    EXPECT_NE(std::string::npos, result.why().find(one.says)) << result.why();
  }
  static inline std::string records_;
};

// Gives worker 1's third pass a gradient that is not finite. Called before the first iteration.
inline void poison_a_pass(int worker, Solver& solver) {
  if (worker != 1) return;
  solver.net().after_forward([&solver, n = 0](int layer) mutable {
    if (solver.net().layers()[static_cast<std::size_t>(layer)]->name() == "still" && ++n == 3)
      solver.net().tops(layer)[0]->data.host_mut()[0] = NAN;
    return Status();
  });
}

inline constexpr const char* kRules[] = {
    "type: 'SGD' base_lr: 0.01 momentum: 0.9",
    "type: 'Nesterov' base_lr: 0.01 momentum: 0.9",
    "type: 'AdaGrad' base_lr: 0.01",
    "type: 'RMSProp' base_lr: 0.001 rms_decay: 0.95",
    "type: 'AdaDelta' base_lr: 1 momentum: 0.95 delta: 1e-6",
    "type: 'Adam' base_lr: 0.001 momentum: 0.9 momentum2: 0.999",
};

inline simulate::Outcome simulated(const SolverParameter& param, int workers, const char* bandwidth,
                                   bool dry = false) {
  const simulate::Cluster cluster = simulate::parse_cluster(
      str("worker { count: ", workers, " compute { ms: 10 } } card { bandwidth: ", bandwidth, " }"),
      "cluster");
  return or_throw(simulate::simulate(param, cluster, {.name = "job", .dry = dry}));
}

}  // namespace shoal::test
