// Tests of a solver whose loss or gradient is not finite.
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/parallel/replicas/replicas.h"
#include "shoal/proto/io.h"
#include "shoal/solver/solver.h"
#include "support/data_files.h"
#include "support/solver_rig.h"

namespace shoal::solver_non_finite_test {
namespace {

using test::all_params;
using test::LogLines;
using test::small_solver;
using test::with_name;

// Returns a net with batches of 4.
std::string net_with_nan(const std::string& path, int bad) {
  test::make_floats(path, bad);
  return "name: 'nan' layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { "
         "source: '" +
         path +
         "' backend: DATUMFILE batch_size: 4 } }\n"
         "layer { name: 'norm' type: 'BatchNorm' bottom: 'data' top: 'norm' }\n"
         "layer { name: 'ip' type: 'InnerProduct' bottom: 'norm' top: 'ip' inner_product_param { "
         "num_output: 2 weight_filler { type: "
         "'xavier' } } }\n"
         "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' "
         "}\n";
}

class SolverNonFinite : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::fresh_directory("non_finite");
    test::make_digits(folder_ + "/data");
    net_ = net_with_nan(folder_ + "/nan", 9);  // in the third batch
  }
  SolverParameter solver_with_nan(const std::string& more) {
    SolverParameter param = small_solver(folder_ + "/data", folder_ + "/s", more);
    *param.mutable_net_param() = parse_net(net_, "nan.prototxt");
    return param;
  }
  std::string folder_, net_;
};

TEST_F(SolverNonFinite, StopsBeforeTheUpdateAndNamesTheFirstBlob) {
  Solver s(solver_with_nan(""), with_name("x"));
  or_throw(s.step(2));
  const std::vector<float> before = all_params(s.net());
  const auto ended = s.step(4);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Code::kNonFinite);
  EXPECT_HAS(ended.error().message, "Iteration 2, lr = 0.05: the loss, ");
  EXPECT_HAS(ended.error().message, "layer 'data' (Data): top 'data' is not finite");
  const std::vector<float> after = all_params(s.net());
  EXPECT_TRUE(std::equal(before.end() - 8, before.end(), after.end() - 8))
      << "InnerProduct's params";
}

TEST_F(SolverNonFinite, IsSaidOfThePassBehindTheLastUpdate) {
  LogLines log;
  Solver s(solver_with_nan("max_iter: 2 display: 1"), with_name("x"));
  EXPECT_EQ(or_throw(s.solve()), Ending::kDone);
  EXPECT_TRUE(
      log.has("The loss with the last update's params is not finite; the first that is "
              "not: nan.prototxt:1: layer 'data' .Data.: top 'data' is not finite"));
  EXPECT_TRUE(log.has("Optimization Done."));
}

TEST_F(SolverNonFinite, SkipsTheUpdateAndGoesOnAsIfItHadNotBeen) {
  LogLines log;
  Solver s(solver_with_nan("on_nan: SKIP"), with_name("x"));
  or_throw(s.step(2));
  const std::vector<float> before = all_params(s.net());
  or_throw(s.step(1));
  EXPECT_EQ(all_params(s.net()), before) << "running means included";
  EXPECT_EQ(s.iteration(), 3);
  or_throw(s.step(3));
  EXPECT_NE(all_params(s.net()), before);
  for (const float value : all_params(s.net())) EXPECT_TRUE(std::isfinite(value));
  EXPECT_TRUE(
      log.has("Iteration 2, lr = 0.05: .* on_nan is SKIP: this update is left out \\(1 so far\\)"));
}

// The states of sequences that go on would stay NaN: those of the solver's own net, and of the
// replica that reads the fourth batch.
TEST_F(SolverNonFinite, SkipsWhatALayerWouldCarryOn) {
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(replicas);
    net_ = net_with_nan(str(folder_, "/nan", replicas), replicas == 1 ? 9 : 13);
    SolverParameter param = solver_with_nan("on_nan: SKIP");
    NetParameter& net = *param.mutable_net_param();
    net.mutable_layer()->DeleteSubrange(1, net.layer_size() - 1);  // but for the data
    net.MergeFrom(parse_net(R"(
      layer { name: 'x' type: 'Reshape' bottom: 'data' top: 'x'
              reshape_param { shape { dim: 2 dim: 2 dim: 3 } } }
      layer { name: 't' type: 'Reshape' bottom: 'label' top: 't'
              reshape_param { shape { dim: 2 dim: 2 } } }
      layer { name: 'cont' type: 'DummyData' top: 'cont'
              dummy_data_param { shape { dim: 2 dim: 2 } data_filler { value: 1 } } }
      layer { name: 'lstm' type: 'LSTM' bottom: 'x' bottom: 'cont' top: 'h'
              recurrent_param { num_output: 2 weight_filler { type: 'xavier' } } }
      layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'h' bottom: 't' top: 'loss'
              softmax_param { axis: 2 } })",
                            "sequences.prototxt"));
    SolverOptions options = with_name("x");
    options.share.replicas = replicas;
    options.make_updater = [&](Net& first) {
      auto updater = make_local_updater(param, "x", first);
      return replicas == 1 ? std::move(updater)
                           : parallel::make_replicas(param, "x", first, {}, std::move(updater));
    };
    const LogLines log;
    Solver s(param, options);
    or_throw(s.step(replicas == 1 ? 3 : 2));
    EXPECT_TRUE(log.has(".*on_nan is SKIP: this update is left out \\(1 so far\\).*"));
    const std::vector<float> before = all_params(s.net());
    or_throw(s.step(1));
    EXPECT_FALSE(log.has(".*this update is left out \\(2 so far\\).*"));
    EXPECT_NE(all_params(s.net()), before);
    EXPECT_TRUE(std::isfinite(s.last_loss()));
  }
}

TEST_F(SolverNonFinite, WritesASnapshotOfTheLastGoodStateThenStops) {
  Solver s(solver_with_nan("on_nan: SNAPSHOT"), with_name("x"));
  or_throw(s.step(2));
  const std::vector<float> before = all_params(s.net());
  const auto ended = s.step(4);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Code::kNonFinite);
  Solver again(solver_with_nan(""), with_name("x"));
  again.restore(folder_ + "/s_iter_2.solverstate");
  EXPECT_EQ(all_params(again.net()), before);
  EXPECT_TRUE(again.step(1).ok()) << "the next batch is good";
}

TEST_F(SolverNonFinite, WarnsAndGoesOn) {
  LogLines log;
  Solver s(solver_with_nan("on_nan: WARN"), with_name("x"));
  EXPECT_TRUE(s.step(6).ok());
  EXPECT_TRUE(std::isnan(s.last_loss()));
  EXPECT_TRUE(log.has("Iteration 2, lr = 0.05: .* on_nan is WARN: going on"));
}

// At w = 0, y = sqrt(w x) has a finite loss, and a slope that is not finite.
TEST_F(SolverNonFinite, SeesAGradientThatIsNotFiniteUnderAFiniteLoss) {
  const char* net =
      "layer { name: 'in' type: 'DummyData' top: 'x' top: 't' dummy_data_param { shape { dim: 2 "
      "dim: 3 } shape { dim: 2 dim: 1 } "
      "data_filler { value: 1 } data_filler { value: 1 } } }\n"
      "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' inner_product_param { "
      "num_output: 1 } }\n"
      "layer { name: 'root' type: 'Power' bottom: 'ip' top: 'y' power_param { power: 0.5 } }\n"
      "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'y' bottom: 't' top: 'loss' }\n";
  for (const char* more : {"", "clip_gradients: 1", "on_nan: SKIP"}) {
    SCOPED_TRACE(more);
    SolverParameter param = small_solver(folder_ + "/data", folder_ + "/s", more);
    *param.mutable_net_param() = parse_net(net, "root.prototxt");
    Solver s(param, with_name("x"));
    const auto ended = s.step(1);
    EXPECT_EQ(s.last_loss(), 0.5f);
    EXPECT_EQ(all_params(s.net()), std::vector<float>(4, 0.0f));
    if (param.on_nan() == SolverParameter::SKIP) {
      EXPECT_TRUE(ended.ok());
      EXPECT_EQ(s.iteration(), 1);
      continue;
    }
    ASSERT_FALSE(ended.ok());
    EXPECT_HAS(ended.error().message,
               "a gradient is not finite; the first that is not: root.prototxt:2: layer 'ip' "
               "(InnerProduct): the gradient of param 0");
  }
}

}  // namespace
}  // namespace shoal::solver_non_finite_test
