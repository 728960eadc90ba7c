// Tests that workers, replicas and one machine alone learn the same from the same records.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <numeric>

#include "shoal/proto/io.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/regression.h"
#include "support/solver_rig.h"

namespace shoal::test::equivalence_test {
namespace {

constexpr int kBatch = 8;              // of all nets together
constexpr double kScale = 0.00390625;  // of pixels

struct Type {
  const char* name;
  const char* param;
  // Rounding: |g| / sqrt(sum of squares) turns the smallest difference into a whole step.
  bool amplifies;
};
const Type kTypes[] = {
    {"SGD", "type: 'SGD' base_lr: 0.01 momentum: 0.9", false},
    {"Nesterov", "type: 'Nesterov' base_lr: 0.01 momentum: 0.9", false},
    {"AdaGrad", "type: 'AdaGrad' base_lr: 0.01", true},
    {"RMSProp", "type: 'RMSProp' base_lr: 0.001 rms_decay: 0.95", true},
    {"AdaDelta", "type: 'AdaDelta' base_lr: 1 momentum: 0.95 delta: 1e-6", true},
    {"Adam", "type: 'Adam' base_lr: 0.001 momentum: 0.9 momentum2: 0.999", false},
};
const Type& kSgd = kTypes[0];

// Writes the records of each batch of kBatch in the opposite order: the sums are the same, in
// another order.
void reverse_batches(const std::string& from, const std::string& to) {
  Records records = or_throw(read_all(*or_throw(open_source("DATUMFILE", from))));
  for (std::size_t i = 0; i + kBatch <= records.size(); i += kBatch)
    std::reverse(records.begin() + static_cast<std::ptrdiff_t>(i),
                 records.begin() + static_cast<std::ptrdiff_t>(i) + kBatch);
  or_throw(write_records("datumfile", to, records));
}

std::string data_layer(const std::string& path, int batch, const std::string& more = "") {
  return str("layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { scale: ",
             kScale, " } data_param { source: '", path, "' backend: DATUMFILE batch_size: ", batch,
             " shared_file_system: true ", more, " } }\n");
}

constexpr const char* kLoss =
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";

// Convolution, a param shared by two layers, one that does not learn.
constexpr const char* kSmallNet = R"(
  layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
    convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'gaussian' std: 0.3 } } }
  layer { name: 'first' type: 'InnerProduct' bottom: 'conv' top: 'first' param { lr_mult: 0 decay_mult: 0 } param { lr_mult: 2 decay_mult: 0 }
    inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
  layer { name: 'tanh' type: 'TanH' bottom: 'first' top: 'tanh' }
  layer { name: 'second' type: 'InnerProduct' bottom: 'tanh' top: 'second' param { name: 'w' } param { name: 'b' }
    inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
  layer { name: 'third' type: 'InnerProduct' bottom: 'second' top: 'third' param { name: 'w' } param { name: 'b' }
    inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'third' top: 'ip' inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
)";

constexpr const char* kLeNet = R"(
  layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1' param { lr_mult: 1 } param { lr_mult: 2 }
    convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: 'xavier' } } }
  layer { name: 'pool1' type: 'Pooling' bottom: 'conv1' top: 'pool1' pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
  layer { name: 'conv2' type: 'Convolution' bottom: 'pool1' top: 'conv2' param { lr_mult: 1 } param { lr_mult: 2 }
    convolution_param { num_output: 50 kernel_size: 5 weight_filler { type: 'xavier' } } }
  layer { name: 'pool2' type: 'Pooling' bottom: 'conv2' top: 'pool2' pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
  layer { name: 'ip1' type: 'InnerProduct' bottom: 'pool2' top: 'ip1' param { lr_mult: 1 } param { lr_mult: 2 }
    inner_product_param { num_output: 500 weight_filler { type: 'xavier' } } }
  layer { name: 'relu1' type: 'ReLU' bottom: 'ip1' top: 'ip1' }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'ip1' top: 'ip' param { lr_mult: 1 } param { lr_mult: 2 }
    inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
)";

SolverParameter solver_of(const std::string& net, const std::string& more) {
  SolverParameter param = parse_solver(
      "lr_policy: 'inv' gamma: 0.01 power: 0.75 max_iter: 1000 display: 0 snapshot_after_train: "
      "false " +
          more,
      "job");
  if (!param.has_random_seed()) param.set_random_seed(3);
  *param.mutable_net_param() = parse_net(net, "job.prototxt");
  return param;
}

// Other options that a rule may have.
constexpr const char* kAll = " weight_decay: 0.004 iter_size: 2 clip_gradients: 0.5";

class Equivalence : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string directory = fresh_directory("equivalence");
    small_ = directory + "/small";
    small_reversed_ = directory + "/small_reversed";
    make_digits(small_);
    reverse_batches(small_, small_reversed_);
    if (tools_dir().empty()) return;
    const Ran drawn =
        run_program({tools_dir() + "/draw_digits", "--train=160", "--test=10", directory});
    ASSERT_EQ(0, drawn.code) << drawn.err;
    digits_ = directory + "/digits_train_datumfile";
    digits_reversed_ = directory + "/digits_reversed";
    reverse_batches(digits_, digits_reversed_);
  }
  static SolverParameter small(int nets, const std::string& more,
                               const std::string& path = small_) {
    return solver_of(data_layer(path, kBatch / nets) + kSmallNet + kLoss, more);
  }
  static SolverParameter lenet(int nets, const std::string& more,
                               const std::string& path = digits_) {
    return solver_of(data_layer(path, kBatch / nets) + kLeNet + kLoss, more);
  }
  using Make = SolverParameter (*)(int, const std::string&, const std::string&);

  // The result of one machine, and its distance from the result with batches added up in another
  // order.
  struct Alone {
    JobResult job;
    double itself = 0;
  };
  static Alone train_alone(Make make, const std::string& words, const std::string& path,
                           const std::string& reversed) {
    Alone alone{train(make(1, words, path), {.stops = kStops})};
    const JobResult other = train(make(1, words, reversed), {.stops = kStops});
    EXPECT_TRUE(alone.job.ok() && other.ok()) << alone.job.why() << other.why();
    alone.itself = distance(other.at(1), alone.job.at(1));
    return alone;
  }

  // Compares six types, k workers against one machine. Where a number falls on a kink (a ReLU's, or
  // a tie in a pool), the last bit of a sum decides, and both are far apart from there on; that is
  // rare, so one of three seeds must do. A wrong sum would show with each.
  static void compare(Make make, const std::string& path, const std::string& reversed,
                      const std::string& more) {
    for (const Type& type : kTypes) {
      std::map<int, Alone> known;
      for (const int workers : {1, 2, 4}) {
        bool good = false;
        for (int seed = 3; seed < 6 && !good; ++seed) {
          const std::string words = str(type.param, more, " random_seed: ", seed);
          if (!known.contains(seed)) known.emplace(seed, train_alone(make, words, path, reversed));
          const Alone& alone = known.at(seed);
          const JobResult job = train(make(workers, words, path),
                                      {.workers = workers, .servers = workers, .stops = kStops});
          ASSERT_TRUE(job.ok()) << type.name << ", " << workers << " workers: " << job.why();
          const double early = distance(job.at(0), alone.job.at(0)),
                       late = distance(job.at(1), alone.job.at(1));
          std::cout << type.name << ", " << workers << " workers, seed " << seed << ": " << early
                    << " after " << kStops[0] << ", " << late << " after " << kStops[1]
                    << "; one machine from itself " << alone.itself << "\n";
          EXPECT_LE(early, kNear) << type.name << ", " << workers << " workers, seed " << seed;
          for (const auto& weights : job.weights)
            EXPECT_EQ(job.weights[0], weights) << type.name << ": workers differ";
          good = late <= (type.amplifies ? std::max(kNear, 3 * alone.itself) : kNear);
        }
        EXPECT_TRUE(good) << type.name << ", " << workers << " workers";
      }
    }
  }

  static constexpr double kNear = 1e-5;
  static inline const std::vector<int> kStops = {5, 50};
  static inline std::string small_, small_reversed_, digits_, digits_reversed_;
};

TEST_F(Equivalence, WorkersOfASmallNetWithAllThatARuleKnows) {
  compare(small, small_, small_reversed_, kAll);
}

TEST_F(Equivalence, WorkersOfLeNetOnDrawnDigits) {
  if (digits_.empty()) GTEST_SKIP() << "TOOLS_DIR is not set";
  compare(lenet, digits_, digits_reversed_, " weight_decay: 0.0005");
}

TEST_F(Equivalence, OneWorkerHasTheBitsOfTheLocalSolver) {
  for (const Type& type : kTypes) {
    const SolverParameter param =
        small(1, std::string(type.param) + " weight_decay: 0.004 iter_size: 2");
    const JobResult alone = train(param, {.stops = {20}}),
                    job = train(param, {.workers = 1, .stops = {20}});
    ASSERT_TRUE(alone.ok() && job.ok()) << alone.why() << job.why();
    EXPECT_EQ(alone.at(0), job.at(0)) << type.name;
    EXPECT_EQ(alone.losses, job.losses) << type.name;
  }
}

TEST_F(Equivalence, TwoRunsHaveTheSameBits) {
  for (const Type& type : kTypes) {
    const SolverParameter param = small(4, type.param + std::string(kAll));
    const JobShape shape{.workers = 4, .servers = 3, .stops = {20}};
    const JobResult first = train(param, shape), second = train(param, shape);
    ASSERT_TRUE(first.ok() && second.ok()) << first.why() << second.why();
    EXPECT_EQ(first.at(0), second.at(0)) << type.name;
  }
}

// SGD sees every factor of the gradient, which a clip and rules with a history of squares hide.
constexpr const char* kPlain = " weight_decay: 0.004 iter_size: 2";

TEST_F(Equivalence, AReferenceInDoublePrecisionSaysTheSameOfAll) {
  const auto make = [](int nets) {
    SolverParameter param =
        solver_of(data_layer(small_, kBatch / nets) +
                      "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' "
                      "inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }" +
                      kLoss,
                  "base_lr: 0.1 momentum: 0.9 weight_decay: 0.01");
    param.set_lr_policy("fixed");
    return param;
  };
  const std::vector<int> stops = {0, 50};
  const JobResult alone = train(make(1), {.stops = stops});
  ASSERT_TRUE(alone.ok()) << alone.why();
  const Weights exact = Regression(small_, kBatch, kScale).train(alone.at(0), 50, 0.1, 0.9, 0.01);
  EXPECT_LE(distance(alone.at(1), exact), 2e-6);
  for (const int nets : {1, 2, 4, 8}) {
    const JobResult job = train(make(nets), {.workers = nets, .stops = stops});
    ASSERT_TRUE(job.ok()) << job.why();
    EXPECT_LE(distance(job.at(1), exact), 2e-6) << nets << " workers";
  }
  const JobResult replicas = train(make(4), {.replicas = 4, .stops = stops});
  ASSERT_TRUE(replicas.ok()) << replicas.why();
  EXPECT_LE(distance(replicas.at(1), exact), 2e-6);
}

TEST_F(Equivalence, ReplicasAndOneMachineWithAllTheirBatches) {
  for (const Type& type : kTypes) {
    for (const char* more : {kPlain, kAll}) {
      const JobResult alone = train(small(1, type.param + std::string(more)), {.stops = {5}});
      for (const int replicas : {2, 4}) {
        const JobResult job = train(small(replicas, type.param + std::string(more)),
                                    {.replicas = replicas, .stops = {5}});
        ASSERT_TRUE(job.ok()) << type.name << ": " << job.why();
        EXPECT_LE(distance(job.at(0), alone.at(0)), 1e-5)
            << type.name << more << ", " << replicas << " replicas";
        for (std::size_t i = 0; i < 5; ++i)
          EXPECT_NEAR(alone.losses[0][i], job.losses[0][i], 1e-4) << type.name << more;
      }
    }
  }
}

TEST_F(Equivalence, WorkersWithReplicas) {
  const std::string words = kSgd.param + std::string(kPlain);
  const JobResult alone = train(small(1, words), {.stops = {50}});
  const JobShape shape{.workers = 2, .servers = 2, .replicas = 2};
  const JobResult job = train(small(4, words), shape), again = train(small(4, words), shape);
  ASSERT_TRUE(job.ok() && again.ok()) << job.why() << again.why();
  EXPECT_LE(distance(job.at(0), alone.at(0)), 1e-5);
  EXPECT_EQ(job.at(0), again.at(0));
}

}  // namespace
}  // namespace shoal::test::equivalence_test
