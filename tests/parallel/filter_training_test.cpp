// Tests training with a Filter: tests, snapshots, workers, replicas and exchanges.
#include <gtest/gtest.h>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/job.h"
#include "support/solver_rig.h"

namespace shoal::test::filter_training_test {
namespace {

// Returns a solver that learns the labels 2 and 3 alone.
SolverParameter choosy_solver(const std::string& folder, const std::string& more, int batch = 8) {
  const std::string path = fresh_directory(folder);
  make_digits(path + "/records");
  SolverParameter param = small_solver(path + "/records", path + "/small", more);
  *param.mutable_net_param() = parse_net(
      str("layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { scale: "
          "0.01 } data_param { source: '",
          path, "/records' backend: DATUMFILE batch_size: ", batch, " shared_file_system: true } }",
          R"(
layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
        convolution_param { num_output: 3 kernel_size: 2 weight_filler { type: 'gaussian' std: 0.3 } } }
layer { name: 'known' type: 'Threshold' bottom: 'label' top: 'known' threshold_param { threshold: 1.5 } }
layer { name: 'choose' type: 'Filter' bottom: 'conv' bottom: 'label' bottom: 'known' top: 'chosen' top: 'chosen_label' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'chosen' top: 'ip'
        inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'chosen_label' top: 'accuracy' include { phase: TEST } }
layer { name: 'prob' type: 'Softmax' bottom: 'ip' top: 'a_prob' include { phase: TEST } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'chosen_label' top: 'loss'
        propagate_down: true propagate_down: false }
)"),
      "choosy.prototxt");
  return param;
}

std::vector<float> train_alone(const SolverParameter& param, const std::string& snapshot = "") {
  Solver solver(param, with_name("choosy"));
  if (!snapshot.empty()) solver.restore(snapshot);
  or_throw(solver.solve());
  return all_params(solver.net());
}

// Returns the numbers behind these words, line by line.
std::vector<float> numbers_of(const LogLines& log, const std::string& words) {
  std::vector<float> numbers;
  for (const std::string& line : log.lines)
    if (line.starts_with(words)) numbers.push_back(std::stof(line.substr(words.size())));
  return numbers;
}

// Batches of 5 have two or three such items.
TEST(FilterTraining, LearnsTestsAndRestoresToTheBit) {
  const SolverParameter param =
      choosy_solver("filter_restores",
                    "max_iter: 60 snapshot: 30 iter_size: 2 test_iter: 4 test_interval: 60", 5);
  std::vector<float> whole;
  {
    const LogLines log;
    whole = train_alone(param);
    EXPECT_TRUE(log.has("    Test net output #0: accuracy = 1"));
    const std::vector<float> losses = numbers_of(log, "    Test net output #1: loss = ");
    ASSERT_EQ(losses.size(), 2u);
    EXPECT_LT(losses[1], losses[0] / 100);
    EXPECT_FALSE(log.has(".*Test net output #2.*")) << "outputs that vary have no mean";
  }
  EXPECT_EQ(train_alone(param, param.snapshot_prefix() + "_iter_30.solverstate"), whole);
}

TEST(FilterTraining, TheBestModelIsFoundByAnOutputWithAMean) {
  const SolverParameter param =
      choosy_solver("filter_best", "test_iter: 1 test_interval: 1 snapshot_best: 'a_prob max'");
  try {
    Solver(param, with_name("choosy"));
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_HAS(error.what(),
               "no output 'a_prob' of one size, of which a mean could be taken; such are accuracy, "
               "loss");
  }
}

// Each of two workers, or replicas, has as many selected items in each iteration as the other: so
// the mean of their gradients is that of the whole batch.
TEST(FilterTraining, WorkersAndReplicasLearnAsOneNet) {
  const auto at_end = [](int batch, const JobShape& shape, const std::string& more = "") {
    const JobResult result = train(choosy_solver("filter_job", more, batch), shape);
    EXPECT_TRUE(result.ok()) << result.why();
    return result.ok() ? result.at(0) : Weights();
  };
  const Weights one = at_end(8, {.stops = {20}});
  EXPECT_LT(distance(at_end(4, {.workers = 2, .stops = {20}}), one), 1e-5);
  EXPECT_LT(distance(at_end(4, {.replicas = 2, .stops = {20}}), one), 1e-5);
  EXPECT_LT(distance(at_end(4, {.workers = 2, .stops = {20}}, "exchange { way: RING }"), one),
            1e-5);
  EXPECT_EQ(at_end(8, {.workers = 1, .stops = {20}}), one);
}

// The factors of a message are of as many items in each iteration.
TEST(FilterTraining, SendsNoFactorsOfLayersThatVary) {
  const JobResult result =
      train(choosy_solver("filter_factors", "exchange { layer { name: 'ip' way: FACTORS } }", 4),
            {.workers = 2, .stops = {2}});
  EXPECT_HAS(result.why(), "its number of items differs from pass to pass");
  EXPECT_TRUE(
      train(choosy_solver("filter_auto", "exchange { way: AUTO }", 4), {.workers = 2, .stops = {2}})
          .ok());
}

}  // namespace
}  // namespace shoal::test::filter_training_test
