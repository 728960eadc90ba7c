// Tests snapshots of a team: written once for all, and read by a team of any size.
#include <gtest/gtest.h>

#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/proto/io.h"
#include "shoal/proto/run.pb.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"
#include "support/job.h"
#include "support/solver_rig.h"
#include "support/team_fixture.h"

namespace shoal::team_snapshots_test {
namespace {

using test::all_params;
using test::options_of;
using test::run_team;
using test::TeamTest;

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
    EXPECT_TRUE(lines.has(str("The snapshot is from 2 workers, and now there are ", size,
                              ": each goes on in its own part of the data.*")));
    for (const RunState& own : states)  // 48 records of the team's
      EXPECT_EQ(static_cast<unsigned char>(own.net(0).layer(0).state()[0]), 48 / size) << size;
  }
  Solver alone(param(more), test::with_name("x"));
  alone.restore(state(3));
  EXPECT_EQ(all_params(alone.net()), before[0]);
  or_throw(alone.step(1));
}

// The chief's error ends the job in its own name, and the other gets it from the coordinator.
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

// The first score is the best of all here. If a new member took another for the best, it would wait
// for the chief's file, and the others would not.
TEST_F(TeamTest, AMemberThatIsNewKnowsTheBestScore) {
  const SolverParameter made =
      plain(8, "test_iter: 2 test_interval: 1 snapshot_best: 'loss max' base_lr: 0.1");
  Solver alone(made, test::with_name("x"));
  or_throw(alone.step(10));
  const auto memory = or_throw(alone.save_state());
  test::LogLines lines;
  run(2, made, [&](Solver& solver, Team& team) {
    solver.restore_state(team.chief() ? memory.get() : nullptr,
                         {.iteration = 10, .iterations = {}, .same_members = false});
    or_throw(solver.step(2));
  });
  EXPECT_FALSE(lines.has("Best loss.*"));
}

}  // namespace
}  // namespace shoal::team_snapshots_test
