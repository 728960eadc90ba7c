// Tests the solver's loop: its updates, its log, the wishes it obeys, its errors.
#include "shoal/solver/solver.h"

#include <gtest/gtest.h>

#include <cmath>

#include "shoal/proto/hdf5.h"
#include "shoal/proto/io.h"
#include "shoal/solver/reporter.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/pattern.h"
#include "support/solver_fixture.h"
#include "support/solver_rig.h"

namespace shoal::solver_test {
namespace {

using test::all_params;
using test::LogLines;
using test::SolverTest;
using test::with_name;

// ---- the update ----

// One pass over 16 records equals two over 8, clipped or not: sums are halved.
TEST_F(SolverTest, TwoPassesAnUpdateAreOneOfTwiceTheBatch) {
  for (const char* clip : {"", "clip_gradients: 0.01"}) {
    SCOPED_TRACE(clip);
    const auto params_after = [&](int batch, int iter_size) {
      SolverParameter param =
          solver(std::string(clip) + " iter_size: " + std::to_string(iter_size));
      NetParameter plain = parse_net(
          "layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { scale: "
          "0.01 } data_param { "
          "source: '" +
              data_ + "' backend: DATUMFILE batch_size: " + std::to_string(batch) +
              " } }\n"
              "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' "
              "inner_product_param { num_output: 4 "
              "weight_filler { type: 'xavier' } } }\n"
              "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: "
              "'loss' }",
          "plain");
      *param.mutable_net_param() = plain;
      Solver s(param, with_name("x"));
      or_throw(s.step(2));
      return all_params(s.net());
    };
    const std::vector<float> one = params_after(16, 1), two = params_after(8, 2);
    double difference = 0;
    for (std::size_t i = 0; i < one.size(); ++i)
      difference = std::max(difference, std::fabs(double{one[i]} - two[i]));
    if (*clip == '\0')
      EXPECT_LT(difference, 1e-6);
    else
      EXPECT_GT(difference, 1e-6)
          << "the limit is on the sum over passes, before its division: as in Caffe";
  }
}

TEST_F(SolverTest, ClippingLimitsTheNormOfAllGradientsTogether) {
  const auto distance = [&](const std::string& clip) {
    Solver s(solver("momentum: 0 base_lr: 1 " + clip), with_name("x"));
    double before = 0;
    const std::vector<float> start = all_params(s.net());
    or_throw(s.step(1));
    const std::vector<float> end = all_params(s.net());
    // The params of the convolution; BatchNorm's sums follow, then lr_mult 1 and 2.
    const std::size_t learned = 3 * 4 + 3;
    for (std::size_t i = 0; i < end.size(); ++i) {
      if (i >= learned && i < learned + 7) continue;
      const double step = (double{end[i]} - start[i]) / (i >= end.size() - 4 ? 2 : 1);
      before += step * step;
    }
    return std::sqrt(before);
  };
  const double free = distance("");
  ASSERT_GT(free, 0.02);
  EXPECT_NEAR(distance("clip_gradients: 0.01"), 0.01, 1e-6);
  EXPECT_NEAR(distance("clip_gradients: 1000"), free, 1e-6);
}

TEST_F(SolverTest, ParamsWithLrMultZeroStay) {
  SolverParameter param = solver("weight_decay: 0.5");
  param.mutable_net_param()->mutable_layer(2)->add_param()->set_lr_mult(0);
  ASSERT_EQ(param.net_param().layer(2).name(), "conv");
  Solver s(param, with_name("x"));
  const std::vector<float> before = all_params(s.net());
  or_throw(s.step(3));
  const std::vector<float> after = all_params(s.net());
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 12, after.begin()));
  EXPECT_NE(before, after);
}

// ---- log lines ----

TEST(SlowDataTest, IsToldOnceOfTenSecondsInWhichMuchWasWaiting) {
  const auto told_at = [](const std::vector<std::pair<double, double>>& displays) {
    SlowData slow;
    std::string told;
    for (std::size_t i = 0; i < displays.size(); ++i)
      if (const auto share = slow.add(displays[i].first, displays[i].second))
        told += str(i, ": ", *share, " ");
    return told;
  };
  EXPECT_EQ(told_at({{0.9, 1}, {0.9, 1}, {7.9, 7.9}}), "") << "less than ten seconds";
  EXPECT_EQ(told_at({{0.9, 1}, {0.9, 1}, {0, 8}}), "") << "a hard start";
  EXPECT_EQ(told_at({{1, 5}, {2, 5}, {9, 9}, {9, 9}}), "1: 0.3 ");
  EXPECT_EQ(told_at({{2, 10}, {2.5, 10}, {8, 10}}), "1: 0.25 ");
}

TEST_F(SolverTest, SaysWhatCaffeSays) {
  LogLines log;
  Solver s(solver("display: 2 average_loss: 2 max_iter: 4 test_iter: 2 test_interval: 4 snapshot: "
                  "4 test_compute_loss: true"),
           with_name("x"));
  ASSERT_EQ(or_throw(s.solve()), Ending::kDone);
  const std::string number = "[0-9.e+-]+";
  for (const std::string& pattern :
       {std::string("Solving small"), std::string("Learning Rate Policy: fixed"),
        std::string("Iteration 0, Testing net \\(#0\\)"), "Test loss: " + number,
        "    Test net output #0: accuracy = " + number,
        "    Test net output #1: loss = " + number + " \\(\\* 1 = " + number + " loss\\)",
        "Iteration 2 \\(" + number + " iter/s, " + number + "s/2 iters\\), loss = " + number,
        "    Train net output #0: loss = " + number + " \\(\\* 1 = " + number + " loss\\)",
        std::string("Iteration 2, lr = 0.05"),
        "    " + number + " images/s, [0-9]+:[0-9][0-9]:[0-9][0-9] left, data [0-9]+% wait",
        "Snapshotting to binary proto file " + folder_ + "/s_iter_4.caffemodel",
        "Snapshotting solver state to binary proto file " + folder_ + "/s_iter_4.solverstate",
        "Iteration 4, loss = " + number, std::string("Iteration 4, Testing net \\(#0\\)"),
        std::string("Optimization Done\\."),
        std::string("Batch 8 x iter_size 1 = 8 items an update, .*")})
    EXPECT_TRUE(log.has(pattern)) << pattern;
  for (const std::string& line : log.lines)
    EXPECT_FALSE(line.empty()) << "parse_log stumbles over empty lines";
}

TEST_F(SolverTest, TheLossShownIsTheMeanOfTheLastOnes) {
  Solver s(solver("average_loss: 3"), with_name("x"));
  std::vector<float> losses;
  for (int i = 0; i < 5; ++i) {
    or_throw(s.step(1));
    losses.push_back(s.last_loss());
  }
  EXPECT_FLOAT_EQ(s.smoothed_loss(), (losses[2] + losses[3] + losses[4]) / 3);
}

TEST_F(SolverTest, DebugInfoNamesEveryBlobAndGradient) {
  LogLines log;
  Solver s(solver("debug_info: true"), with_name("x"));
  or_throw(s.step(1));
  for (const char* start : {"    \\[Forward\\] Layer conv, top blob conv data: ",
                            "    \\[Forward\\] Layer conv, param blob 0 data: ",
                            "    \\[Backward\\] Layer loss, bottom blob ip diff: ",
                            "    \\[Backward\\] Layer ip, param blob 1 diff: ",
                            "    \\[Backward\\] All net params \\(data, diff\\): L1 norm = \\("})
    EXPECT_TRUE(log.has(std::string(start) + ".*")) << start;
  EXPECT_FALSE(log.has("    \\[Backward\\] Layer conv, bottom blob data .*"))
      << "the data has no gradient";
}

// ---- wishes from outside ----

TEST_F(SolverTest, ActionsAreObeyed) {
  const struct {
    Action action;
    bool after_train;
    Ending ending;
    std::int64_t iteration;
    bool snapshot;
  } cases[] = {
      {Action::kSnapshot, false, Ending::kDone, 5, true},
      {Action::kStop, false, Ending::kStopped, 3, false},
      {Action::kStop, true, Ending::kStopped, 3, true},
      {Action::kRequeue, false, Ending::kRequeue, 3, true},
  };
  int number = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(number);
    const std::string prefix = "act" + std::to_string(number++);
    int asked = 0;
    SolverOptions options = with_name("x");
    options.action = [&] { return ++asked == 3 ? c.action : Action::kNone; };
    Solver s(solver(std::string("max_iter: 5 snapshot_after_train: ") +
                        (c.after_train ? "true" : "false"),
                    prefix),
             options);
    EXPECT_EQ(or_throw(s.solve()), c.ending);
    EXPECT_EQ(s.iteration(), c.iteration);
    EXPECT_EQ(why_incomplete(folder_ + "/" + prefix + "_iter_3") == "", c.snapshot);
  }
}

// Counts the calls of its updater, by which the solver makes each step in a distributed run.
class CountingUpdater final : public ForwardingUpdater {
 public:
  CountingUpdater(std::unique_ptr<Updater> inner, std::vector<std::string>& calls)
      : ForwardingUpdater(std::move(inner)), calls_(calls) {}
  Status begin(std::int64_t iteration, float rate) override {
    rate_ = rate;
    iteration_ = iteration;
    return {};
  }
  Status before_forward(int layer) override {
    return calls_.push_back("before " + std::to_string(layer)), Status();
  }
  Status after_backward(std::span<const int> layers) override {
    EXPECT_EQ(layers.size(), 1u);
    return calls_.push_back("after " + std::to_string(layers[0])), Status();
  }
  Result<StepOutcome> end_step(StepEnd) override {
    calls_.push_back(str("update ", iteration_, " ", rate_));
    return StepOutcome::kApplied;
  }
  Status settle(Settle how) override {
    if (how == Settle::kOwn) calls_.push_back("settle");
    return {};
  }

 private:
  std::int64_t iteration_ = 0;
  float rate_ = 0;
  std::vector<std::string>& calls_;
};

TEST_F(SolverTest, AsksTheUpdaterInItsOrder) {
  std::vector<std::string> calls;
  SolverOptions options = with_name("x");
  const SolverParameter param = solver("iter_size: 2 test_iter: 1 test_interval: 1");
  options.make_updater = [&](Net& net) {
    return std::make_unique<CountingUpdater>(make_local_updater(param, "x", net), calls);
  };
  Solver s(param, options);
  or_throw(s.step(1));
  std::vector<std::string> wanted = {"settle"};
  const int layers = static_cast<int>(s.net().layers().size());
  // In the first of the two passes:
  for (int i = 0; i < layers; ++i) wanted.push_back("before " + std::to_string(i));
  // In the last pass:
  for (int i = layers; i-- > 0;) wanted.push_back("after " + std::to_string(i));
  wanted.push_back("update 0 0.05");
  EXPECT_EQ(calls, wanted);
}

TEST_F(SolverTest, DataThatEndsTheRunDoesNotTakeWhatWasLearned) {
  test::Records records;
  for (int i = 0; i < 40; ++i)
    records.emplace_back("r" + std::to_string(100 + i),
                         i == 30 ? "no datum" : test::datum(1, 6, 6, std::string(36, 'x'), i % 4));
  or_throw(test::write_records("datumfile", folder_ + "/bad", records));
  const std::string net = test::replaced(test::small_net(folder_ + "/bad"), " shuffle: true", "");
  for (const char* after : {"true", "false"}) {
    SolverParameter param =
        solver(std::string("snapshot_after_train: ") + after, std::string("bad_") + after);
    *param.mutable_net_param() = parse_net(net, "bad");
    Solver s(param, with_name("x"));
    const auto ended = s.solve();
    ASSERT_FALSE(ended.ok());
    EXPECT_EQ(ended.error().code, Code::kData);
    EXPECT_HAS(ended.error().message, "r130");
    EXPECT_EQ(s.iteration(), 3);
    const bool saved = std::string(after) == "true";
    EXPECT_EQ(
        ended.error().message.find("a snapshot has the state of iteration 3") != std::string::npos,
        saved);
    EXPECT_EQ(newest_snapshot(folder_ + "/bad_" + after) != "", saved);
  }
}

// ---- what is refused ----

TEST_F(SolverTest, MistakesAreNamed) {
  EXPECT_HAS(refusal("type: 'Adamm'"),
             "x.prototxt: no solver type 'Adamm'; did you mean 'Adam'? Known: SGD, Nesterov");
  EXPECT_HAS(refusal("lr_policy: 'stepp'"),
             "x.prototxt: no lr_policy 'stepp'; did you mean 'step'?");
  EXPECT_HAS(refusal("type: 'AdaGrad'"),
             "x.prototxt: momentum is 0.9, and AdaGrad has none: leave it out");
  EXPECT_HAS(refusal("regularization_type: 'L3'"),
             "x.prototxt: no regularization_type 'L3'; known: L1, L2");
  EXPECT_HAS(refusal("iter_size: 0"), "x.prototxt: iter_size is 0; it must be 1 or more");
  EXPECT_HAS(refusal("max_iter: -1"), "x.prototxt: max_iter is -1; it must be 0 or more");
  EXPECT_HAS(refusal("global_grad_scale: 0"),
             "x.prototxt: global_grad_scale is 0; it must be a number above 0");
  if (!why_no_hdf5().empty()) {
    EXPECT_HAS(refusal("snapshot_format: HDF5"),
               "x.prototxt: snapshot_format is HDF5, and this build has no HDF5");
  }
  EXPECT_HAS(refusal("test_iter: 1"), "x.prototxt: test_iter is given, but test_interval is not");
  EXPECT_HAS(refusal("test_iter: 0 test_interval: 1"),
             "x.prototxt: test_iter is 0; it must be 1 or more");
  EXPECT_HAS(refusal("test_iter: 1 test_interval: 1 test_state {} test_state {}"),
             "test_state has 2 values for 1 test nets");
  EXPECT_HAS(refusal("net_param { name: 'a' } train_net_param { name: 'b' }"),
             "exactly one of net, net_param, train_net and train_net_param");
  EXPECT_HAS(refusal("test_iter: 1 test_interval: 1 snapshot_best: 'accuracy'"),
             "snapshot_best is 'accuracy'; it must be");
  EXPECT_HAS(refusal("test_iter: 1 test_interval: 1 snapshot_best: 'acuracy max'"),
             "no output 'acuracy'; did you mean 'accuracy'?");
  EXPECT_HAS(refusal("snapshot: 1 snapshot_prefix: '" + data_ + "/below_a_file'"),
             "no snapshot could be written under snapshot_prefix");
}

TEST_F(SolverTest, TestNetsComeInCaffesOrder) {
  SolverParameter param =
      solver("test_iter: 1 test_iter: 1 test_iter: 1 test_interval: 1 test_initialization: false");
  test::put_file(folder_ + "/file.prototxt",
                 "name: 'of a file' layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param "
                 "{ shape { dim: 1 } } }");
  param.add_test_net(folder_ + "/file.prototxt");
  *param.add_test_net_param() = parse_net(
      "name: 'in place' layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { shape { "
      "dim: 1 } } "
      "include { stage: 'deep' } }",
      "in place");
  param.add_test_state()->add_stage("deep");
  param.add_test_state();
  param.add_test_state()->set_level(2);
  Solver s(param, with_name("x"));
  ASSERT_EQ(s.test_nets().size(), 3u);
  EXPECT_EQ(s.test_nets()[0]->name(), "in place");
  EXPECT_EQ(s.test_nets()[1]->name(), "of a file");
  EXPECT_EQ(s.test_nets()[2]->name(), "small");
  for (const auto& net : s.test_nets()) EXPECT_FALSE(net->training());
}

TEST_F(SolverTest, DeterministicIsTheSameForAnyNumberOfThreads) {
  std::vector<std::vector<float>> ends;
  LogLines log;
  for (const int threads : {1, 3}) {
    Solver s(solver("deterministic: true max_iter: 5"), with_name("x", threads));
    or_throw(s.solve());
    EXPECT_EQ(s.net().context().threads(), 1);
    ends.push_back(all_params(s.net()));
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_TRUE(log.has("deterministic: true computes on one thread, not 3: .*"));
}

TEST_F(SolverTest, FieldsWithoutEffectAreNamed) {
  LogLines log;
  Solver s(solver("layer_wise_reduce: false device_list: '0,1' deterministic: true"),
           with_name("x"));
  for (const char* words : {"layer_wise_reduce: false has no effect", "device_list has no effect"})
    EXPECT_TRUE(std::ranges::any_of(log.lines, [&](const std::string& line) {
      return line.find(words) != std::string::npos;
    })) << words;
}

TEST_F(SolverTest, ModeGpuIsTrainedOnTheCpuWithOneWarning) {
  LogLines log;
  Solver s(solver("solver_mode: GPU"), with_name("x"));
  EXPECT_EQ(std::count_if(log.lines.begin(), log.lines.end(),
                          [](const auto& line) {
                            return line.find("solver_mode is GPU") != std::string::npos;
                          }),
            1);
  EXPECT_TRUE(s.step(1).ok());
}

}  // namespace
}  // namespace shoal::solver_test
