// Tests of training on a device that is not the host: a run alone and jobs of several workers,
// which end in the bits of the CPU.
#include <gtest/gtest.h>

#include "shoal/parallel/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/tensor/context.h"
#include "support/cluster.h"
#include "support/data_files.h"
#include "support/guarded_device.h"
#include "support/solver_rig.h"

namespace shoal::test::device_job_test {
namespace {

constexpr const char* kLayers = R"(
layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'bn' type: 'BatchNorm' bottom: 'conv' top: 'bn' }
layer { name: 'relu' type: 'ReLU' bottom: 'bn' top: 'bn' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'bn' top: 'ip'
        inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'
        include { phase: TEST } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
)";

// A solver of drawn digits that tests, clips, decays and saves, with this text added.
SolverParameter solver_of(const std::string& folder, const std::string& more) {
  const std::string path = fresh_directory(folder) + "/digits";
  make_digits(path);
  SolverParameter param = parse_solver(
      "base_lr: 0.02 momentum: 0.9 lr_policy: 'fixed' weight_decay: 0.001 clip_gradients: 3 "
      "random_seed: 3 display: 5 test_iter: 2 test_interval: 6 " +
          more,
      "device");
  param.set_snapshot_prefix(path + "_model");
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: '" + path +
          "' backend: DATUMFILE batch_size: 4 shared_file_system: true } "
          "transform_param { scale: 0.01 } }" +
          kLayers,
      "device.prototxt");
  return param;
}

// The params and histories in the snapshot of an iteration.
std::string saved(const SolverParameter& param, int iteration) {
  const std::string files = param.snapshot_prefix() + "_iter_" + std::to_string(iteration);
  return get_file(files + ".caffemodel") + get_file(files + ".solverstate");
}

Status train(const SolverParameter& param, const Device* device, table::Table* table,
             const std::string& snapshot = "") {
  parallel::RunOptions options;
  options.device = device;
  options.threads = 2;
  options.snapshot = snapshot;
  const Result<Ending> ending =
      parallel::run(parallel::read_job_spec(param, "device"), options, table);
  return ending.ok() ? Status() : Status(ending.error());
}

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().message; }

TEST(DeviceJobs, ARunAloneEndsInTheBitsOfTheCpu) {
  const SolverParameter param = solver_of("device_alone", "max_iter: 12 snapshot: 6");
  expect_ok(train(param, nullptr, nullptr));
  const std::string half = saved(param, 6), whole = saved(param, 12);
  const GuardedDevice device(7, 2);
  expect_ok(train(param, &device, nullptr));
  EXPECT_GT(device.done(), 100) << "ops ran there";
  EXPECT_EQ(saved(param, 6), half);
  EXPECT_EQ(saved(param, 12), whole);
  expect_ok(train(param, &device, nullptr, param.snapshot_prefix() + "_iter_6.solverstate"));
  EXPECT_EQ(saved(param, 12), whole) << "the device goes on from a snapshot";
}

class DeviceSchemes : public testing::TestWithParam<const char*> {};

TEST_P(DeviceSchemes, AJobEndsInTheBitsOfTheCpu) {
  const SolverParameter param = solver_of("device_job", GetParam());
  const auto job = [&](const std::vector<const Device*>& devices) {
    const auto life = [&](int worker, table::Table& table) {
      return train(param, devices[static_cast<std::size_t>(worker)], &table);
    };
    for (const Status& status : run_workers(2, 2, life)) expect_ok(status);
    return saved(param, 12);
  };
  const std::string on_cpu = job({nullptr, nullptr});
  const GuardedDevice first(7, 2), second(8, 2);
  EXPECT_EQ(job({&first, &second}), on_cpu);
  EXPECT_EQ(job({nullptr, &second}), on_cpu) << "one worker on a device";
}

INSTANTIATE_TEST_SUITE_P(
    All, DeviceSchemes,
    testing::Values("max_iter: 12 scheme { type: 'bsp' }",
                    "scheme { type: 'local_steps' local_steps: 3 } "
                    "max_iter: 12",
                    "max_iter: 12 iter_size: 2 solver_type: ADAM scheme { type: 'bsp' }"));

}  // namespace
}  // namespace shoal::test::device_job_test
