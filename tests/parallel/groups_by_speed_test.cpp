// Tests runs that find their groups by speed, on workers whose speeds the test sets, whatever this
// machine does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "shoal/base/file.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/parallel/tuning/grouping.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/forwarding_table.h"
#include "support/job.h"
#include "support/schemes.h"
#include "support/solver_rig.h"

namespace shoal::test::groups_by_speed_test {
namespace {

// Seconds that a worker computes for an iteration while the table has its n-th plan.
using StepTime = std::function<double(int worker, int plan)>;

struct Plans {
  std::vector<std::string> schemes;
  std::vector<table::Clock> starts;
  std::vector<std::vector<double>> weights;  // of the workers' parts of the data
};

// A worker's table whose time passes by its pushes alone: a row's part of an iteration each.
class PacedTable final : public ForwardingTable {
 public:
  PacedTable(table::Table& inner, StepTime step_time, Plans& plans)
      : ForwardingTable(inner), step_time_(std::move(step_time)), plans_(plans) {}
  Status create(const table::Plan& plan, const Source& initial,
                const Destinations& destinations) override {
    learning_ = static_cast<double>(std::ranges::count_if(plan.rows, &table::Row::learns));
    if (worker() == 0) {
      plans_.schemes.push_back(plan.scheme.words()), plans_.starts.push_back(plan.start);
      plans_.weights.emplace_back();
      for (const auto& process : roster().processes)
        if (process.worker >= 0) plans_.weights.back().push_back(process.weight);
    }
    ++plan_;
    return ForwardingTable::create(plan, initial, destinations);
  }
  void push(std::span<const table::Push> together) override {
    now_ += std::chrono::nanoseconds(std::llround(
        1e9 * step_time_(worker(), plan_) * static_cast<double>(together.size()) / learning_));
    ForwardingTable::push(together);
  }
  table::Instant now() const override { return now_; }

 private:
  const StepTime step_time_;
  Plans& plans_;
  int plan_ = -1;
  double learning_ = 1;
  table::Instant now_{};
};

struct Trained {
  Plans plans;
  std::uint64_t merges = 0, contributions = 0;
  std::size_t rows = 0;  // that learn
  std::string why;       // the first error
};

class GroupsBySpeed : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_directory("groups_by_speed");
    make_digits(folder_ + "/data");
  }
  SolverParameter param(const std::string& more) const {
    SolverParameter made = small_solver(folder_ + "/data", folder_ + "/s", more);
    share_data(*made.mutable_net_param());
    return made;
  }
  Trained train(const std::string& more, int workers, const StepTime& step_time,
                const parallel::RunOptions& given = {}) const {
    Trained result;
    Job cluster(workers, 2);
    const auto outcomes = cluster.run([&](int, table::Table& inner) -> Status {
      PacedTable table(inner, step_time, result.plans);
      parallel::RunOptions options = given;
      try {
        const Result<Ending> ending =
            parallel::run(parallel::read_job_spec(param(more), "x"), options, &table);
        return ending.ok() ? Status() : Status(ending.error());
      } catch (const ConfigError& error) {
        return error.error();
      }
    });
    for (const Status& outcome : outcomes)
      if (!outcome.ok() && result.why.empty()) result.why = outcome.error().message;
    result.merges = cluster.merges();
    result.contributions = cluster.contributions();
    result.rows = cluster.learning_rows();
    return result;
  }
  std::string folder_;
};

TEST_F(GroupsBySpeed, AreThoseOfTheProfile) {
  const auto step_time = [](int worker, int) { return worker % 2 == 0 ? 0.2 : 0.05; };
  const Trained trained = train(
      "max_iter: 12 scheme { type: 'grouped' group_by: SPEED profile_iterations: 5 staleness: 3 }",
      4, step_time);
  EXPECT_EQ(trained.why, "");
  EXPECT_EQ(trained.plans.schemes,
            (std::vector<std::string>{"async", "grouped groups=1,3|0,2 staleness=3"}));
  EXPECT_EQ(trained.plans.starts, (std::vector<table::Clock>{0, 5}));
  ASSERT_EQ(trained.plans.weights.size(), 2u);
  EXPECT_EQ(trained.plans.weights[0], (std::vector<double>{0, 0, 0, 0})) << "all are equal";
  const std::vector<double>& weights = trained.plans.weights[1];
  EXPECT_GT(weights[0], 0);
  EXPECT_NEAR(weights[1], 4 * weights[0], 1e-6 * weights[1]);
  EXPECT_EQ(weights, (std::vector<double>{weights[0], weights[1], weights[0], weights[1]}));
  EXPECT_EQ(trained.contributions, trained.rows * 4 * 12) << "each push of each worker counts once";
  EXPECT_EQ(trained.merges, trained.rows * (4 * 5 + 2 * 7)) << "one by one, then a group at a time";
}

TEST_F(GroupsBySpeed, NoneStandsOutOneGroupIsAll) {
  const Trained trained =
      train("max_iter: 8 scheme { type: 'grouped' group_by: SPEED profile_iterations: 4 }", 3,
            [](int, int) { return 0.1; });
  EXPECT_EQ(trained.why, "");
  EXPECT_EQ(trained.plans.schemes, (std::vector<std::string>{"async", "grouped groups=0,1,2"}));
}

TEST_F(GroupsBySpeed, MayBeAllThatIsAskedFor) {
  parallel::RunOptions options;
  options.profile_only = true;
  options.groups_out = folder_ + "/groups";
  const auto step_time = [](int worker, int) { return worker == 1 ? 0.5 : 0.05; };
  const Trained trained =
      train("max_iter: 1000 scheme { type: 'grouped' group_by: SPEED profile_iterations: 4 }", 3,
            step_time, options);
  EXPECT_EQ(trained.why, "");
  EXPECT_EQ(trained.plans.schemes, (std::vector<std::string>{"async"}));
  EXPECT_EQ(get_file(options.groups_out), "0 2\n1\n");
}

std::string groups_in(const std::string& words) {
  return table::text_of(table::scheme_of(words).groups.value_or(table::Groups()));
}

// Speeds change in the third plan, whose groups are still those of the profile. Workers that a
// bound keeps together meet at one clock, and others each at the end of its task.
TEST_F(GroupsBySpeed, AreLookedAtAgainAndChangeIfThatIsWorthIt) {
  const auto step_time = [](int worker, int plan) {
    return (plan < 2 ? worker < 2 : worker % 2 == 0) ? 0.05 : 0.2;
  };
  for (const std::string bound : {"staleness: 2 ", ""}) {
    SCOPED_TRACE(bound);
    const Trained trained = train(
        "max_iter: 60 scheme { type: 'grouped' group_by: SPEED profile_iterations: 5 "
        "regroup_interval: 6 " +
            bound + "}",
        4, step_time);
    EXPECT_EQ(trained.why, "");
    std::vector<std::string> groups;
    for (const std::string& words : trained.plans.schemes) groups.push_back(groups_in(words));
    ASSERT_GE(groups.size(), 5u);
    groups.resize(5);
    EXPECT_EQ(groups, (std::vector<std::string>{"", "0,1|2,3", "0,1|2,3", "0,2|1,3", "0,2|1,3"}));
    EXPECT_EQ(trained.contributions, trained.rows * 4 * 60);
  }
}

// Worker 3 is nearly twice as fast from the third plan on, and would be a group of its own; all
// together would do 8 % more.
TEST_F(GroupsBySpeed, StayIfLittleIsGained) {
  const std::vector<double> later = {20, 20, 5, 9.2};
  ASSERT_EQ(parallel::text_of(parallel::find_groups(later).groups), "0,1|3|2");
  const auto step_time = [&](int worker, int plan) {
    return worker == 3 && plan < 2 ? 0.2 : 1 / later[static_cast<std::size_t>(worker)];
  };
  const Trained trained = train(
      "max_iter: 40 scheme { type: 'grouped' group_by: SPEED profile_iterations: 5 "
      "regroup_interval: 6 staleness: 2 }",
      4, step_time);
  EXPECT_EQ(trained.why, "");
  ASSERT_GE(trained.plans.schemes.size(), 5u);
  for (std::size_t plan = 1; plan < trained.plans.schemes.size(); ++plan)
    EXPECT_EQ(groups_in(trained.plans.schemes[plan]), "0,1|2,3") << plan;
}

TEST_F(GroupsBySpeed, AnEpochOfTheDataIsTheUsualInterval) {
  parallel::RunOptions options;
  options.records = [](const Share&) { return std::uint64_t{80}; };
  const auto even = [](int, int) { return 0.1; };
  const std::string by_speed =
      "max_iter: 40 scheme { type: 'grouped' group_by: SPEED profile_iterations: 5 staleness: 0 ";
  const Trained trained = train(by_speed + "}", 2, even, options);
  EXPECT_EQ(trained.why, "");
  ASSERT_GE(trained.plans.starts.size(), 3u);
  const auto items = 2 * 8;  // an iteration of both
  for (std::size_t i = 2; i < trained.plans.starts.size(); ++i) {
    EXPECT_GE(trained.plans.starts[i] - trained.plans.starts[i - 1], 80 / items);
    EXPECT_LE(trained.plans.starts[i] - trained.plans.starts[i - 1], 80 / items + 4)
        << "agreed on a little later";
  }
  EXPECT_EQ(train(by_speed + "regroup_interval: 0 }", 2, even, options).plans.starts,
            (std::vector<table::Clock>{0, 5}));
}

TEST_F(GroupsBySpeed, SayWhatCannotBeBeforeTheyTrain) {
  parallel::RunOptions options;
  options.profile_only = true;
  const auto even = [](int, int) { return 0.1; };
  EXPECT_HAS(train("max_iter: 9", 2, even, options).why,
             "x: --profile_only: no scheme of the run has group_by: SPEED");
  options.profile_only = false;
  options.data_sharding_out = "/no/such/folder/shares";
  EXPECT_HAS(train("max_iter: 9", 2, even, options).why, "/no/such/folder");
  const std::string clipped =
      "max_iter: 9 clip_gradients: 1 scheme { type: 'grouped' group_by: SPEED profile_iterations: "
      "4 }";
  EXPECT_HAS(train(clipped, 2, even).why,
             "clip_gradients limits the norm of the gradients of all workers together");
}

}  // namespace
}  // namespace shoal::test::groups_by_speed_test
