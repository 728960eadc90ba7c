// A solver in a team: what its members do together, and what each keeps for itself.
#include <gtest/gtest.h>

#include <cstring>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/proto/io.h"
#include "shoal/proto/run.pb.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"
#include "support/data_files.h"
#include "support/simulated_workers.h"
#include "support/solver_rig.h"

namespace shoal::team_test {
namespace {

using test::all_params;
using test::run_team;

// Lockstep: every member makes the same update of the mean of all gradients. Params and histories
// start as the chief's.
class MeanUpdater final : public ForwardingUpdater, public Checkpointed {
 public:
  MeanUpdater(const SolverParameter& param, Net& net, Team& team, float weight)
      : ForwardingUpdater(make_local_updater(param, "x", net)),
        net_(net),
        team_(team),
        weight_(weight) {}

  Status begin(std::int64_t iteration, float rate) override {
    if (Status status = settle(Settle::kOwn); !status.ok()) return status;
    return inner().begin(iteration, rate);
  }
  Result<StepOutcome> end_step(StepEnd how) override {
    if (how == StepEnd::kSkip) return inner().end_step(how);
    std::vector<double> sums = {weight_};
    for (const NetParam& param : net_.params())
      for (const float number : param.blob->grad.host()) sums.push_back(double{weight_} * number);
    if (Status status = team_.sum(sums); !status.ok()) return status.error();
    auto from = sums.begin() + 1;
    for (const NetParam& param : net_.params())
      for (float& number : param.blob->grad.host_mut())
        number = static_cast<float>(*from++ / sums[0]);
    return inner().end_step(how);
  }
  Status settle(Settle how) override {
    if (how == Settle::kTeams) ++refreshed;
    if (created_) return {};
    created_ = true;
    for (Tensor* history : histories())
      if (Status status = share(history->host_mut()); !status.ok()) return status;
    for (const NetParam& param : net_.params())
      if (Status status = share(param.blob->data.host_mut()); !status.ok()) return status;
    return {};
  }
  Checkpointed& state() override { return *this; }
  std::optional<double> seconds_waited() const override { return 0; }

  Status prepare_save() override { return {}; }
  std::vector<Tensor*> histories() override { return inner().state().histories(); }
  void start_at(std::int64_t iteration, const std::vector<std::int64_t>&) override {
    started_at = iteration;
  }
  std::shared_ptr<const OwnState> own_state() override { return nullptr; }
  void take_own_state(std::shared_ptr<const OwnState>) override {}
  void put(RunState&) override {}
  void take(const RunState&, const std::string&) override {}

  int refreshed = 0;
  std::int64_t started_at = -1;

 private:
  // Makes these numbers the chief's.
  Status share(std::span<float> numbers) {
    const Result<std::string> chiefs =
        team_.share({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
    if (!chiefs.ok()) return chiefs.error();
    std::memcpy(numbers.data(), chiefs.value().data(), numbers.size_bytes());
    return {};
  }

  Net& net_;
  Team& team_;
  float weight_;
  bool created_ = false;
};

SolverOptions options_of(const SolverParameter& param, Team& team) {
  SolverOptions options;
  options.name = "x";
  options.team = &team;
  options.share.client = team.index();
  options.share.clients = team.size();
  const float weight = contribution_weight(param, "x", options.share);
  options.make_updater = [&param, &team, weight](Net& net) {
    return std::make_unique<MeanUpdater>(param, net, team, weight);
  };
  return options;
}

struct Rows final : Observer {
  void displayed(const Measured& row) override { shown.push_back(row); }
  void tested(int net, const Measured& row) override {
    EXPECT_EQ(net, 0);
    tests.push_back(row);
  }
  std::vector<Measured> shown, tests;
};

class TeamTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::fresh_directory("team");
    test::make_digits(folder_ + "/data");
  }
  // The small net, whose dropout, crops and running means are each member's own.
  SolverParameter param(const std::string& more = "") {
    SolverParameter made = test::small_solver(folder_ + "/data", folder_ + "/s", more);
    test::share_data(*made.mutable_net_param());
    return made;
  }
  // A net without chance, so that a team's batches together are one machine's.
  SolverParameter plain(int batch, const std::string& more = "", int test_batch = 5) {
    SolverParameter made = param(more);
    const std::string data = "transform_param { scale: 0.01 } data_param { source: '" + folder_ +
                             "/data' backend: DATUMFILE batch_size: ";
    const std::string net =
        "name: 'plain' layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: "
        "TRAIN } " +
        data + str(batch) +
        "} } layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: TEST } " +
        data + str(test_batch) +
        R"(} } layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
                              inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
                            layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy' include { phase: TEST } }
                            layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";
    *made.mutable_net_param() = parse_net(net, "plain.prototxt");
    test::share_data(*made.mutable_net_param());
    return made;
  }
  // Params of every member after body(solver, team).
  std::vector<std::vector<float>> run(int size, const SolverParameter& param,
                                      const std::function<void(Solver&, Team&)>& body) {
    std::vector<std::vector<float>> params(static_cast<std::size_t>(size));
    const auto thrown = run_team(size, [&](Team& team) {
      Solver solver(param, options_of(param, team));
      body(solver, team);
      params[static_cast<std::size_t>(team.index())] = all_params(solver.net());
    });
    for (const std::string& error : thrown) EXPECT_EQ(error, "");
    return params;
  }
  std::string state(int iteration) const {
    return state_path(snapshot_stem(folder_ + "/s", iteration));
  }
  std::string folder_;
};

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

TEST_F(TeamTest, BatchesOfATestAreDividedAndEveryMemberHasTheScores) {
  for (const auto& [size, batches] : {std::pair{2, 5}, {3, 2}, {4, 1}, {2, 2}}) {
    std::vector<std::vector<TestScore>> scores(static_cast<std::size_t>(size));
    std::vector<int> read(static_cast<std::size_t>(size));
    const SolverParameter made = plain(4, str("test_interval: 1 test_iter: ", batches), 1);
    run(size, made, [&](Solver& solver, Team& team) {
      scores[static_cast<std::size_t>(team.index())] = or_throw(solver.test(0));
      Layer& data = *solver.test_nets()[0]->layers()[0];
      read[static_cast<std::size_t>(team.index())] =
          static_cast<unsigned char>(data.save_state()[0]);
    });
    int all = 0;
    for (int i = 0; i < size; ++i) {
      EXPECT_EQ(read[static_cast<std::size_t>(i)], batches / size + (i < batches % size))
          << i << " of " << size;
      all += read[static_cast<std::size_t>(i)];
      ASSERT_EQ(scores[static_cast<std::size_t>(i)].size(), 2u);
      EXPECT_EQ(scores[static_cast<std::size_t>(i)][0].mean, scores[0][0].mean);
      EXPECT_EQ(scores[static_cast<std::size_t>(i)][1].mean, scores[0][1].mean);
    }
    EXPECT_EQ(all, batches);
    // records of one each: a whole number of them is right
    const double right = scores[0][0].mean * batches;
    EXPECT_NEAR(right, std::round(right), 1e-9);
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

// ---- snapshots ----

TEST_F(TeamTest, TheChiefWritesOneSnapshotForAll) {
  run(3, param(), [&](Solver& solver, Team&) {
    or_throw(solver.step(2));
    ASSERT_OK(solver.snapshot());
  });
  EXPECT_EQ(why_damaged(snapshot_stem(folder_ + "/s", 2)), "");
  const RunState run = read_run_state(run_path(snapshot_stem(folder_ + "/s", 2)));
  EXPECT_EQ(run.member_size(), 2);
  EXPECT_EQ(run.net_size(), 1);
  for (const MemberState& member : run.member()) EXPECT_EQ(member.net_size(), 1);
  EXPECT_NE(run.net(0).random().stream(), run.member(0).net(0).random().stream());
}

TEST_F(TeamTest, AResumedTeamGoesOnAsIfItHadNotStopped) {
  const std::string more =
      "test_iter: 3 test_interval: 4 snapshot: 4 average_loss: 3 type: 'Adam' base_lr: 0.01 "
      "display: 1";
  std::vector<float> smoothed(4);
  const auto whole = run(2, param(more), [&](Solver& solver, Team& team) {
    or_throw(solver.step(8));
    smoothed[static_cast<std::size_t>(team.index())] = solver.smoothed_loss();
  });
  for (const char* const folder : {"", "/other"}) {
    // The members that are not the chief need no files.
    const auto resumed = run(2, param(more), [&](Solver& solver, Team& team) {
      solver.restore(team.chief() ? state(4) : str("/nowhere", folder));
      EXPECT_EQ(solver.iteration(), 4);
      or_throw(solver.step(4));
      smoothed[static_cast<std::size_t>(2 + team.index())] = solver.smoothed_loss();
    });
    EXPECT_EQ(resumed, whole);
    EXPECT_EQ(smoothed[0], smoothed[2]);
    EXPECT_EQ(smoothed[1], smoothed[3]);
  }
}

TEST_F(TeamTest, ASnapshotServesATeamOfAnySize) {
  const std::string more = "test_iter: 3 test_interval: 100 test_initialization: false";
  const auto before = run(2, param(more), [&](Solver& solver, Team&) {
    or_throw(solver.step(3));  // 2 x 3 x 8 records
    ASSERT_OK(solver.snapshot());
  });
  for (const int size : {1, 3}) {
    test::LogLines lines;
    std::vector<RunState> states(static_cast<std::size_t>(size));
    const auto after = run(size, param(more), [&](Solver& solver, Team& team) {
      solver.restore(state(3));
      EXPECT_EQ(solver.iteration(), 3);
      if (team.chief()) {
        EXPECT_EQ(all_params(solver.net()), before[0]);
      }
      states[static_cast<std::size_t>(team.index())].add_net()->add_layer()->set_state(
          solver.net().layers()[0]->save_state());
      or_throw(solver.step(1));
    });
    EXPECT_TRUE(lines.has(str("The snapshot is of 2 workers, and now there are ", size,
                              ": each goes on in its own part of the data.*")));
    for (const RunState& own : states)  // 48 records of the team's
      EXPECT_EQ(static_cast<unsigned char>(own.net(0).layer(0).state()[0]), 48 / size) << size;
  }
  Solver alone(param(more), test::with_name("x"));
  alone.restore(state(3));
  EXPECT_EQ(all_params(alone.net()), before[0]);
  or_throw(alone.step(1));
}

// The chief's error ends the job in its own name, and the other hears it from the coordinator.
TEST_F(TeamTest, WhatTheChiefCannotWriteEndsAll) {
  const SolverParameter made = param("snapshot: 1");
  std::filesystem::create_directories(run_path(snapshot_stem(folder_ + "/s", 1)) + "/full");
  const auto thrown = run_team(2, [&](Team& team) {
    Solver solver(made, options_of(made, team));
    const Result<Ending> ending = solver.step(3);
    ASSERT_FALSE(ending.ok());
    EXPECT_EQ(ending.error().code, Code::kSnapshot);
    EXPECT_EQ(solver.iteration(), 1);
    throw ConfigError(ending.error());
  });
  EXPECT_HAS(thrown[0], "s_iter_1.run");
  EXPECT_EQ(thrown[1], thrown[0]);
}

TEST_F(TeamTest, WhatTheChiefCannotReadEndsAll) {
  const SolverParameter made = param();
  const auto thrown = run_team(2, [&](Team& team) {
    Solver solver(made, options_of(made, team));
    solver.restore(folder_ + "/nothing.solverstate");
  });
  EXPECT_HAS(thrown[0], "cannot open " + folder_ + "/nothing.solverstate");
  EXPECT_EQ(thrown[1], thrown[0]);
}

TEST_F(TeamTest, TheBestModelIsTheTeams) {
  run(2, param("test_iter: 4 test_interval: 2 snapshot_best: 'loss min' max_iter: 4 base_lr: 0.2"),
      [&](Solver& solver, Team&) {
        or_throw(solver.solve());
        ASSERT_OK(solver.snapshot());
      });
  EXPECT_TRUE(file_exists(best_path(folder_ + "/s")));
  EXPECT_GT(read_run_state(run_path(snapshot_stem(folder_ + "/s", 4))).best_value(), 0);
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
      // before iterations 0, 1, 2, 3
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
