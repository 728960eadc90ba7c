// Tests tasks of several steps under schemes without a common clock: tests, stops and snapshots of
// a job whose workers are apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "shoal/net/net.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/io.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/local_steps_rig.h"
#include "support/overheard.h"
#include "support/solver_rig.h"

namespace shoal::test::apart_steps_test {
namespace {

using local_steps::aim;
using local_steps::deltas;
using local_steps::one_number;
using local_steps::Told;
using local_steps::tried;
using table::Clock;
using table::ContributionKind;
using table::Start;

struct Worker {
  std::unique_ptr<Team> team;
  std::unique_ptr<Solver> solver;
};

Worker make_worker(SolverParameter param, int index, int workers, table::Table& table,
                   const table::SchemeMaker& maker, std::function<Action()> action = nullptr) {
  aim(index, param);
  Worker worker{parallel::make_table_team(table), nullptr};
  SolverOptions options = with_name("job");
  options.team = worker.team.get();
  options.share = {.client = index, .clients = workers, .replica = 0, .replicas = 1};
  options.action = std::move(action);
  options.make_updater = [&](Net& net) {
    return parallel::make_table_updater(param, net, table, {.name = "job", .maker = maker});
  };
  worker.solver = std::make_unique<Solver>(param, options);
  return worker;
}

SolverParameter tested(const std::string& more) {
  SolverParameter param =
      one_number("test_iter: 3 test_interval: 2 test_initialization: false " + more);
  NetParameter test = param.net_param();
  param.clear_net_param();
  *param.mutable_train_net_param() = test;
  *param.add_test_net_param() = test;
  return param;
}

TEST(LocalSteps, ApartTheChiefTestsAlone) {
  for (const ContributionKind kind :
       {ContributionKind::kDelta, ContributionKind::kWeights, ContributionKind::kGradient}) {
    const table::SchemeMaker maker = tried(
        {.contribution = kind, .steps = kind == ContributionKind::kGradient ? 1 : 2}, false, 0.5F);
    Job cluster(2, 1, maker);
    Gate gate;
    const SolverParameter param = tested("max_iter: 6");
    const auto outcomes = cluster.run([&](int index, table::Table& table) -> Status {
      const Worker worker = make_worker(param, index, 2, table, maker);
      if (index == 0) {
        const Result<Ending> first = worker.solver->step(5);  // with two tests
        gate.reach(1);
        if (!first.ok()) return first.error();
      } else if (const Result<Ending> first = worker.solver->step(1); !first.ok()) {
        return first.error();
      } else if (!gate.wait(1)) {
        return Error{Code::kTimeout, "the chief waits for others"};
      }
      const Result<Ending> ending = worker.solver->solve();
      if (!ending.ok()) return ending.error();
      return table.finish(worker.solver->iteration());
    });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  }
}

// Worker 0 is five times as fast, and one of them requests a stop when it has done its 50 tasks, or
// the other its 10. The other is in its 50th or 10th task then, or just behind it, and ends that
// one alone.
TEST(LocalSteps, ApartAStopIsEverybodysAtOnce) {
  constexpr int kTasks[] = {50, 10};
  for (const int stopped : {0, 1}) {
    const table::SchemeMaker maker = tried(deltas(2), false, 0.5F);
    Job cluster(2, 1, maker);
    Gate came[2], said;
    std::int64_t at[2] = {-1, -1};
    const SolverParameter param = one_number("max_iter: 100000");
    const auto outcomes = cluster.run([&](int index, table::Table& inner) -> Status {
      Overheard table(inner, said);
      const int other = 1 - index, last = kTasks[index];
      int boundaries = 0;
      const auto action = [&] {  // asked before each task
        const int n = boundaries++;
        came[index].reach(n + 1);
        // The workers go in step, five tasks to one.
        if (n < last && !came[other].wait(n * kTasks[other] / last)) return Action::kRequeue;
        // The other requests the task after its last.
        if (n == last && !came[other].wait(kTasks[other] + 1)) return Action::kRequeue;
        if (n == last && index == stopped) return Action::kStop;
        if (n > last && !said.wait(1)) return Action::kRequeue;
        return Action::kNone;
      };
      const Worker worker = make_worker(param, index, 2, table, maker, action);
      const Result<Ending> ending = worker.solver->solve();
      if (!ending.ok()) return ending.error();
      EXPECT_EQ(Ending::kStopped, ending.value());
      at[index] = worker.solver->iteration();
      return table.finish(at[index]);
    });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    const int other = 1 - stopped;
    EXPECT_EQ(kTasks[stopped], at[stopped]);
    EXPECT_GE(at[other], kTasks[other]);
    EXPECT_LE(at[other], kTasks[other] + 1)
        << "it ends the task that it is in, and begins no other";
  }
}

TEST(LocalSteps, ApartTheChiefsIntervalSavesAndAllGoOnFromThere) {
  const std::string prefix = fresh_directory("local_apart") + "/snapshot";
  const SolverParameter param = tested(
      "max_iter: 12 snapshot: 4 snapshot_after_train: true snapshot_prefix: '" + prefix + "'");
  for (const ContributionKind kind : {ContributionKind::kDelta, ContributionKind::kWeights}) {
    const table::SchemeMaker maker = tried({.contribution = kind, .steps = 2}, false, 0.5F);
    for (const std::string& from : {std::string(), prefix + "_iter_8.solverstate"}) {
      Job cluster(3, 2, maker);
      const auto outcomes = cluster.run([&](int index, table::Table& table) -> Status {
        const Worker worker = make_worker(param, index, 3, table, maker);
        if (!from.empty()) worker.solver->restore(from);
        const bool known = from.empty() || index == 0;  // others go on where they were
        EXPECT_TRUE(!known || worker.solver->iteration() == (from.empty() ? 0 : 8));
        const Result<Ending> ending = worker.solver->solve();
        if (!ending.ok()) return ending.error();
        EXPECT_EQ(12, worker.solver->iteration());
        return table.finish(12);
      });
      for (const Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      for (const int iteration : {4, 8, 12})
        EXPECT_TRUE(std::filesystem::exists(str(prefix, "_iter_", iteration, ".caffemodel")))
            << iteration;
    }
  }
}

// A worker that the pacer holds back stops when others do: worker 1 may start its second task only
// when worker 0 requests its fiftieth.
class Holding final : public Told {
 public:
  std::vector<Start> take_starts(table::Instant) override {
    std::vector<Start> starts;
    for (const auto& [worker, clock] : waiting) {
      if (worker == 0) first = clock;
      if (worker == 1 && clock >= 1 && first < 50) continue;
      starts.push_back({.worker = worker});
    }
    std::erase_if(waiting, [&](const auto& one) {
      return std::ranges::any_of(starts,
                                 [&](const Start& start) { return start.worker == one.first; });
    });
    return starts;
  }
  Clock first = 0;
};

TEST(LocalSteps, ApartWhoIsHeldBackComesToAStop) {
  const std::string prefix = fresh_directory("local_held") + "/snapshot";
  const table::SchemeMaker maker =
      tried({.contribution = ContributionKind::kDelta, .steps = 1, .paced = true}, false, 0.5F,
            [] { return std::make_unique<Holding>(); });
  for (const int max : {20, 60}) {
    Job cluster(2, 1, maker);
    const SolverParameter param =
        one_number(str("max_iter: ", max, " snapshot: 10 snapshot_prefix: '", prefix, max, "'"));
    std::int64_t at[2] = {-1, -1};
    const auto outcomes = cluster.run([&](int index, table::Table& table) -> Status {
      int boundaries = 0;
      const Worker worker = make_worker(param, index, 2, table, maker, [&] {
        return index == 0 && max == 20 && boundaries++ == 15 ? Action::kStop : Action::kNone;
      });
      const Result<Ending> ending = worker.solver->solve();
      if (!ending.ok()) return ending.error();
      at[index] = worker.solver->iteration();
      return table.finish(at[index]);
    });
    for (const Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    EXPECT_TRUE(std::filesystem::exists(str(prefix, max, "_iter_10.caffemodel")));
    if (max == 20)
      EXPECT_LE(at[1], 1);  // 0: the other was there before it had begun
    else
      EXPECT_EQ(at[1], 60);
  }
}

}  // namespace
}  // namespace shoal::test::apart_steps_test
