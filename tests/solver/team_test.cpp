// Tests a solver in a team: the acts its members do together, and the state each keeps for itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "shoal/base/file.h"
#include "shoal/proto/io.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/solver.h"
#include "support/job.h"
#include "support/solver_rig.h"
#include "support/team_fixture.h"

namespace shoal::team_test {
namespace {

using test::all_params;
using test::options_of;
using test::Rows;
using test::run_team;
using test::TeamTest;

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, all = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    apart += std::pow(a[i] - b[i], 2), all += std::pow(a[i], 2);
  return std::sqrt(apart / all);
}

// ---- training and testing ----

TEST_F(TeamTest, ATeamLearnsAsOneMachineWithAllItsBatches) {
  const std::string more = "display: 1 test_iter: 4 test_interval: 5 max_iter: 10";
  Rows one, two;
  SolverOptions alone = test::with_name("x");
  alone.observer = &one;
  Solver solver(plain(8, more), alone);
  or_throw(solver.solve());
  const SolverParameter half = plain(4, more);
  std::vector<std::vector<float>> params(2);
  run_team(2, [&](Team& team) {
    SolverOptions options = options_of(half, team);
    if (team.chief()) options.observer = &two;
    Solver member(half, options);
    or_throw(member.solve());
    params[static_cast<std::size_t>(team.index())] = all_params(member.net());
  });
  EXPECT_EQ(params[0], params[1]);
  EXPECT_LT(distance(all_params(solver.net()), params[0]), 1e-6);
  ASSERT_EQ(one.shown.size(), 10u);
  ASSERT_EQ(two.shown.size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(two.shown[i].iteration, static_cast<std::int64_t>(i));
    EXPECT_NEAR(two.shown[i].loss, one.shown[i].loss, 1e-5);
    ASSERT_EQ(two.shown[i].outputs.size(), 1u);
    EXPECT_NEAR(two.shown[i].outputs[0], one.shown[i].outputs[0], 1e-5);
  }
  EXPECT_GT(one.shown[0].loss, 1.1 * one.shown[9].loss);
  ASSERT_EQ(one.tests.size(), 3u);
  ASSERT_EQ(two.tests.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(two.tests[i].iteration, static_cast<std::int64_t>(5 * i));
    ASSERT_EQ(two.tests[i].outputs.size(), 2u);
    EXPECT_NEAR(two.tests[i].outputs[0], one.tests[i].outputs[0], 1e-6);
    EXPECT_NEAR(two.tests[i].loss, one.tests[i].loss, 1e-5);
    EXPECT_GT(two.tests[i].loss, 0);
  }
}

// Every member has the scores that one process alone would have.
TEST_F(TeamTest, BatchesOfATestAreDividedAndEveryMemberHasTheScores) {
  for (const auto& [size, batches] : {std::pair{2, 5}, {3, 2}, {4, 1}, {2, 2}}) {
    std::vector<std::vector<TestScore>> scores(static_cast<std::size_t>(size));
    std::vector<int> read(static_cast<std::size_t>(size));
    const SolverParameter made = plain(4, str("test_interval: 1 test_iter: ", batches), 3);
    Solver alone(made, test::with_name("x"));
    const std::vector<TestScore> want = or_throw(alone.test(0));
    run(size, made, [&](Solver& solver, Team& team) {
      scores[static_cast<std::size_t>(team.index())] = or_throw(solver.test(0));
      Layer& data = *solver.test_nets()[0]->layers()[0];
      read[static_cast<std::size_t>(team.index())] =
          static_cast<unsigned char>(data.save_state()[0]);
    });
    // Members with unequal shares know how many records all of them have read.
    const bool unequal = batches % size != 0;
    for (int i = 0; i < size; ++i) {
      const int own = batches / size + (i < batches % size);
      EXPECT_EQ(read[static_cast<std::size_t>(i)], own == 0 ? 0 : 3 * (unequal ? batches : own))
          << i << " of " << size;
      ASSERT_EQ(scores[static_cast<std::size_t>(i)].size(), 2u);
      for (std::size_t output : {0u, 1u}) {
        EXPECT_EQ(scores[static_cast<std::size_t>(i)][output].mean, scores[0][output].mean);
        EXPECT_NEAR(scores[0][output].mean, want[output].mean, 1e-6) << size << " " << batches;
      }
    }
    // Batches have three records: a whole number of them is right.
    const double right = scores[0][0].mean * batches * 3;
    EXPECT_NEAR(right, std::round(right), 1e-5);
    EXPECT_GT(scores[0][1].mean, 0.5)
        << "the mean loss of a net that has learned nothing, not a part of it";
  }
}

TEST_F(TeamTest, RunningMeansAreOfAllMembersWhenTheyAreLookedAt) {
  std::vector<std::vector<float>> before(2);
  const auto after = run(2, param("test_iter: 2 test_interval: 100 test_initialization: false"),
                         [&](Solver& solver, Team& team) {
                           or_throw(solver.step(3));
                           before[static_cast<std::size_t>(team.index())] =
                               all_params(solver.net());
                           ASSERT_OK(solver.snapshot());
                         });
  EXPECT_NE(before[0], before[1]);
  EXPECT_EQ(after[0], after[1]);
  for (std::size_t i = 0; i < after[0].size(); ++i)
    EXPECT_NEAR(after[0][i], (double{before[0][i]} + double{before[1][i]}) / 2,
                1e-6 * std::abs(after[0][i]));
}

// ---- wishes ----

// All do it at one iteration: the first that none of them had begun when it was said.
TEST_F(TeamTest, AWishOfOneIsDoneByAllAtOnce) {
  for (const auto& [wish, ending] :
       {std::pair{Action::kStop, Ending::kStopped}, {Action::kRequeue, Ending::kRequeue}}) {
    const SolverParameter made = param("test_iter: 2 test_interval: 1 max_iter: 20");
    std::vector<std::int64_t> stopped(3);
    const auto thrown = run_team(3, [&](Team& team) {
      SolverOptions options = options_of(made, team);
      int asked = 0;
      // The action is asked before iterations 0, 1, 2, 3.
      if (team.index() == 2) options.action = [&] { return ++asked == 4 ? wish : Action::kNone; };
      Solver solver(made, options);
      EXPECT_EQ(or_throw(solver.solve()), ending);
      stopped[static_cast<std::size_t>(team.index())] = solver.iteration();
    });
    for (const std::string& error : thrown) EXPECT_EQ(error, "");
    EXPECT_EQ(stopped, (std::vector<std::int64_t>{4, 4, 4}));
    EXPECT_EQ(file_exists(state(4)), wish == Action::kRequeue);
  }
}

// ---- batches ----

TEST_F(TeamTest, AGlobalBatchIsDividedAndWeighted) {
  const SolverParameter whole = plain(10, "batch_semantics: GLOBAL max_iter: 4 display: 1");
  Solver alone(plain(10, "max_iter: 4 display: 1"), test::with_name("x"));
  EXPECT_EQ(alone.items_per_update(), 10);
  std::vector<std::int64_t> batches(3);
  test::LogLines lines;
  Share share;
  share.clients = 3;
  std::vector<float> weights;
  for (share.client = 0; share.client < 3; ++share.client)
    weights.push_back(contribution_weight(whole, "x", share));
  EXPECT_EQ(weights, (std::vector<float>{1.2f, 0.9f, 0.9f}));
  run(3, whole, [&](Solver& solver, Team& team) {
    EXPECT_EQ(solver.items_per_update(), 10);
    batches[static_cast<std::size_t>(team.index())] =
        solver.net().outputs().empty() ? 0 : solver.net().blob("data")->shape()[0];
    or_throw(solver.solve());
  });
  EXPECT_EQ(batches, (std::vector<std::int64_t>{4, 3, 3}));
  EXPECT_TRUE(lines.has(
      "Batch 10 divided as 4, 3, 3 among workers 3 x replicas 1, x iter_size 1 = 10 items an "
      "update; the mean of all gradients is taken; "
      "1 threads"));
}

TEST_F(TeamTest, AGlobalBatchSmallerThanTheTeamIsRefused) {
  SolverParameter small = plain(2, "batch_semantics: GLOBAL");
  Share share;
  share.clients = 3;
  const auto refusal = [&] {
    try {
      train_net_of(small, "x", share);
      return std::string("nothing was thrown");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal(),
            "x: batch_semantics is GLOBAL, and the batch_size of layer 'data', 2, is less than the "
            "3 nets that divide it "
            "(3 workers x 1 replicas)");
  *small.mutable_net_param() = parse_net(
      "layer { name: 'd' type: 'DummyData' top: 'd' dummy_data_param { shape { dim: 2 } } }", "d");
  EXPECT_EQ(
      refusal(),
      "x: batch_semantics is GLOBAL, and the train net has no layer with a batch_size to divide");
}

TEST_F(TeamTest, TheFirstLineSaysWhatABatchIs) {
  test::LogLines lines;
  run_team(2, [&](Team& team) {
    const SolverParameter made = plain(4, "iter_size: 3");
    SolverOptions options = options_of(made, team);
    options.epoch = 60;
    Solver solver(made, options);
    EXPECT_EQ(solver.items_per_update(), 24);
  });
  EXPECT_TRUE(
      lines.has("Batch 4 x workers 2 x replicas 1, x iter_size 3 = 24 items an update; one epoch, "
                "60 records, is 2.5 iterations; the mean of "
                "all gradients is taken; 1 threads"));
}

}  // namespace
}  // namespace shoal::team_test
