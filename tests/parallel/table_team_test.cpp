// Tests the solver's team over a table's coordinator.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "shoal/parallel/worker.h"
#include "shoal/table/messages.h"
#include "support/data_files.h"
#include "support/job.h"

namespace shoal::test::table_team_test {
namespace {

// Runs body(worker, team) for each of `workers`, and fails if one of them does.
void together(int workers, const std::function<void(int worker, Team& team)>& body) {
  Job cluster(workers);
  const auto outcomes = cluster.run([&](int worker, table::Table& table) -> Status {
    const std::unique_ptr<Team> team = parallel::make_table_team(table);
    EXPECT_EQ(worker, team->index());
    EXPECT_EQ(workers, team->size());
    EXPECT_EQ(worker == 0, team->chief());
    body(worker, *team);
    return {};
  });
  for (const Status& status : outcomes) ASSERT_OK(status);
}

TEST(TableTeam, SumsGathersAndSharesInTurns) {
  for (const int workers : {1, 3}) {
    together(workers, [&](int worker, Team& team) {
      for (int round = 0; round < 3; ++round) {
        double numbers[] = {worker + 1.0, 0.1 * round, -1e300};
        ASSERT_OK(team.sum(numbers));
        EXPECT_EQ(workers * (workers + 1) / 2, numbers[0]);
        EXPECT_DOUBLE_EQ(0.1 * round * workers, numbers[1]);
        EXPECT_EQ(-1e300 * workers, numbers[2]);
        ASSERT_OK(team.sum({}));

        const Result<std::vector<std::string>> all =
            team.gather(std::string(static_cast<std::size_t>(worker), 'x') + std::to_string(round));
        ASSERT_OK(all);
        ASSERT_EQ(worker == 0 ? static_cast<std::size_t>(workers) : 0u, all.value().size());
        for (std::size_t w = 0; w < all.value().size(); ++w)
          EXPECT_EQ(std::string(w, 'x') + std::to_string(round), all.value()[w]);

        const Result<std::string> shared =
            team.share(worker == 0 ? str("chief's ", round) : "ignored");
        ASSERT_OK(shared);
        EXPECT_EQ(str("chief's ", round), shared.value());
      }
    });
  }
}

// A member's state of a net may be longer than any body.
TEST(TableTeam, WhatIsLongerThanABodyGoesInPieces) {
  const std::size_t length = table::kMaxBodyBytes + 12345;
  together(3, [&](int worker, Team& team) {
    const auto letter = static_cast<char>('a' + worker);
    const Result<std::vector<std::string>> all =
        team.gather(std::string(worker == 1 ? length : 7, letter));
    ASSERT_OK(all);
    if (worker == 0) {
      const std::vector<std::string> want{"aaaaaaa", std::string(length, 'b'), "ccccccc"};
      EXPECT_TRUE(all.value() == want);
    }
    std::string text(worker == 0 ? length : 0, 'x');
    if (worker == 0) text.back() = 'y';
    const Result<std::string> shared = team.share(text);
    ASSERT_OK(shared);
    EXPECT_EQ(length, shared.value().size());
    EXPECT_EQ("xy", shared.value().substr(length - 2));
    std::vector<double> numbers(length / sizeof(double), worker);
    ASSERT_OK(team.sum(numbers));
    EXPECT_TRUE(std::ranges::all_of(numbers, [](double sum) { return sum == 3; }));
  });
}

TEST(TableTeam, ReportsAreAveragedByWeight) {
  std::vector<Team::Average> averages;
  together(2, [&](int worker, Team& team) {
    for (std::int64_t iteration = 0; iteration < 3; ++iteration) {
      const double numbers[] = {10.0 * worker + static_cast<double>(iteration), 1};
      team.report(iteration, worker == 0 ? 1 : 3, numbers);
    }
    ASSERT_OK(team.sum({}));  // all have spoken
    std::vector<Team::Average> mine = team.take_averages();
    if (worker == 0)
      averages = std::move(mine);
    else
      EXPECT_TRUE(mine.empty());
    EXPECT_TRUE(team.take_averages().empty());
  });
  ASSERT_EQ(3u, averages.size());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(static_cast<std::int64_t>(i), averages[i].iteration);
    EXPECT_EQ((std::vector<double>{7.5 + static_cast<double>(i), 1}), averages[i].numbers);
  }
}

TEST(TableTeam, TheSlowOneIsNamedWithWhatItSpendsItsTimeOn) {
  Job cluster(3);
  const auto outcomes = cluster.run([](int worker, table::Table& table) -> Status {
    const std::unique_ptr<Team> team = parallel::make_table_team(table);
    for (std::int64_t iteration = 100; iteration <= 600; iteration += 100) {
      if (worker == 2)
        team->note(iteration, {.iterations = 100, .compute = 2, .data = 7});
      else
        team->note(iteration, {.iterations = 100, .compute = 2, .data = 0.1, .rows = 7});
      if (Status status = team->sum({}); !status.ok()) return status;  // nobody runs away
    }
    return {};
  });
  for (const Status& status : outcomes) ASSERT_OK(status);
  const std::vector<std::string> warnings = cluster.warnings();
  ASSERT_EQ(1u, warnings.size());
  EXPECT_EQ(0u, warnings[0].find("straggler: rank 2")) << warnings[0];
  EXPECT_NE(std::string::npos, warnings[0].find("the largest part of its time is data"))
      << warnings[0];
}

TEST(TableTeam, AllDoWhatOneWantsAtTheSameIteration) {
  for (const Action wanted : {Action::kSnapshot, Action::kStop, Action::kRequeue}) {
    std::vector<std::vector<std::int64_t>> done(3);
    together(3, [&](int worker, Team& team) {
      for (std::int64_t iteration = 0; iteration < 20; ++iteration) {
        const Result<Action> action =
            team.agree(iteration, worker == 1 && iteration == 4 ? wanted : Action::kNone);
        ASSERT_OK(action);
        ASSERT_OK(team.sum({}));  // nobody runs away
        if (action.value() == Action::kNone) continue;
        EXPECT_EQ(wanted, action.value());
        done[static_cast<std::size_t>(worker)].push_back(iteration);
      }
    });
    ASSERT_EQ(1u, done[0].size());
    EXPECT_GE(done[0][0], 4);
    EXPECT_EQ(done[0], done[1]);
    EXPECT_EQ(done[0], done[2]);
  }
}

}  // namespace
}  // namespace shoal::test::table_team_test
