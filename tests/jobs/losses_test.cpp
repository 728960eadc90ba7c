// Tests jobs of real train processes that go on without one that is killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <iostream>

#include "jobs/process_losses.h"
#include "shoal/base/file.h"
#include "shoal/solver/snapshot.h"
#include "support/expect.h"

namespace shoal::test::process_losses_test {
namespace {

struct Loss {
  std::string name, roles;
  std::size_t victim;
  std::string scheme;
  int workers;  // that are left
};

class ProcessLost : public ProcessLosses, public testing::WithParamInterface<Loss> {};

TEST_P(ProcessLost, TheOthersGoOn) {
  const Loss& loss = GetParam();
  const std::string path = solver(loss.name, str("scheme { ", loss.scheme, " } copies: 2", kTable));
  JobProcesses job(job_folder(loss.name), loss.roles);
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  const std::size_t first = loss.roles.find_first_not_of('s');
  ASSERT_TRUE(job.says(first, "Iteration 5 (")) << job.wait(first).ran.err;
  job.signal(loss.victim, SIGKILL);
  EXPECT_EQ(job.wait(loss.victim).ran.code, 128 + SIGKILL);
  const bool worked = loss.roles[loss.victim] != 's';
  const std::size_t chief = std::max(first, loss.victim == 0 ? std::size_t{1} : 0);
  ASSERT_TRUE(job.says(chief, str("continuing with ", loss.workers, " workers (was ",
                                  loss.workers + (worked ? 1 : 0), ")")))
      << job.wait(chief).ran.err;
  const std::size_t coordinator = loss.victim == 0 ? 1 : 0;
  ASSERT_TRUE(job.says(coordinator, str("lost rank ", loss.victim, " (host ")));
  end(job, loss.victim);
  EXPECT_NE(newest_snapshot(folder_ + "/" + loss.name), "");
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, ProcessLost,
    testing::Values(Loss{"bsp", "bbb", 2, "type: 'bsp'", 2},
                    Loss{"halves", "bbb", 1, "type: 'bsp' } codec { push: 'fp16' min_count: 1", 2},
                    Loss{"ssp", "bbb", 1, "type: 'ssp' staleness: 2", 2},
                    Loss{"async_worker", "bbw", 2, "type: 'async'", 2},
                    Loss{"async_server", "bws", 2, "type: 'async'", 2},
                    Loss{"grouped", "bbb", 1, "type: 'grouped' groups: '0,1|2'", 2},
                    Loss{"backup", "bbb", 2, "type: 'sync_backup' backup: 1", 2},
                    Loss{"pool", "bbb", 1, "type: 'async' share_iterations: true", 2},
                    Loss{"esync", "bbb", 2, "type: 'esync' epsilon: 0.001 max_steps: 3", 2},
                    Loss{"drift", "bbb", 1, "type: 'drift_barrier' max_advance: 3", 2},
                    Loss{"elastic", "bbb", 1, "type: 'elastic' local_steps: 3", 2},
                    // Process 0 coordinates, and is the chief.
                    Loss{"bsp_0", "bbb", 0, "type: 'bsp'", 2},
                    Loss{"ssp_0", "bbb", 0, "type: 'ssp' staleness: 2", 2},
                    Loss{"async_0", "bbw", 0, "type: 'async'", 2},
                    Loss{"grouped_0", "bbb", 0, "type: 'grouped' groups: '0,1|2'", 2},
                    Loss{"pool_0", "bbb", 0, "type: 'async' share_iterations: true", 2},
                    Loss{"esync_0", "bbb", 0, "type: 'esync' epsilon: 0.001 max_steps: 3", 2},
                    Loss{"drift_0", "bbb", 0, "type: 'drift_barrier' max_advance: 3", 2},
                    Loss{"elastic_0", "bbb", 0, "type: 'elastic' local_steps: 3", 2},
                    Loss{"server_0", "sbb", 0, "type: 'bsp'", 2},
                    // The only server, which coordinates, trains, or neither.
                    Loss{"only_server_0", "sww", 0, "type: 'bsp'", 2},
                    Loss{"only_both_0", "bww", 0, "type: 'async'", 2},
                    Loss{"only_both_of_two", "bw", 0, "type: 'bsp'", 1},
                    Loss{"only_server", "wsw", 1, "type: 'bsp'", 2},
                    Loss{"only_both", "wbw", 1, "type: 'ssp' staleness: 1", 2}),
    [](const auto& info) { return info.param.name; });

// The process is a worker, and a server whose rows have copies.
TEST_F(ProcessLosses, WhatItsCodecsHadLeftOutIsNamed) {
  const std::string path = solver(
      "topk",
      str("scheme { type: 'bsp' } copies: 2 codec { push: 'topk:0.1' min_count: 1 }", kTable));
  JobProcesses job(job_folder("topk"), "bbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
  job.signal(1, SIGKILL);
  ASSERT_TRUE(job.says(0, "What codecs had left out of the pushes of rank 1 (host "))
      << job.wait(0).ran.err;
  ASSERT_TRUE(job.says(0, "continuing with 2 workers (was 3)"));
  end(job, 1);
}

// Workers that exchange gradients among themselves wait for the lost one in the middle of an
// iteration.
struct SumLoss {
  std::string way, rule;
  std::string roles = "bbb";
  std::size_t victim = 2;
};

class SumProcessLost : public ProcessLosses, public testing::WithParamInterface<SumLoss> {};

TEST_P(SumProcessLost, TheOthersReachTheEnd) {
  const SumLoss& loss = GetParam();
  const std::string name = str("sums_", loss.way, loss.roles.size(), loss.victim);
  const std::string path = put_small_solver(
      folder_, name,
      str("base_lr: 0.001 ", loss.rule, " momentum: 0.9 max_iter: 150 snapshot: 150 display: 1 ",
          "scheme { type: 'bsp' } exchange { way: ", loss.way, " }"));
  JobProcesses job(job_folder(name), loss.roles);
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
  job.signal(loss.victim, SIGKILL);
  EXPECT_EQ(job.wait(loss.victim).ran.code, 128 + SIGKILL);
  const std::size_t workers = loss.roles.size(), chief = loss.victim == 0 ? 1 : 0;
  for (std::size_t rank = workers; rank-- > 0;) {
    if (rank == loss.victim) continue;
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 0) << "rank " << rank << ": " << ran.err;
    if (rank != chief) continue;
    EXPECT_HAS(ran.err, str("continuing with ", workers - 1, " workers (was ", workers, ")"));
    if (rank > 0) continue;
    EXPECT_HAS(ran.err, "a loss has interrupted this worker");
    EXPECT_HAS(ran.err, "Losses: the job goes on without");
  }
  EXPECT_NE(get_file(snapshot_stem(folder_ + "/" + name, 150) + ".caffemodel"), "");
}

std::vector<SumLoss> sum_losses() {
  std::vector<SumLoss> all;
  for (const char* const way : {"TREE", "RING", "HALVING_DOUBLING", "DIRECT", "FACTORS"}) {
    all.push_back({way, "type: 'SGD'"});
    all.push_back({way, "type: 'Adam'", "bbbb", 3});
    all.push_back({way, "type: 'Adam'", "bbb", 0});
    all.push_back({way, "type: 'SGD'", "bwww", 0});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, SumProcessLost, testing::ValuesIn(sum_losses()),
                         [](const auto& info) {
                           return str(info.param.way, "_", info.param.roles.size(), "_",
                                      info.param.victim);
                         });

// One after the other, down to the chief, which trains alone then.
TEST_F(ProcessLosses, WorkersThatSumGoOnUntilTheChiefIsLeft) {
  const std::string path = solver("alone", "scheme { type: 'bsp' } exchange { way: RING }");
  JobProcesses job(job_folder("alone"), "bbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 ("));
  job.signal(1, SIGKILL);
  ASSERT_TRUE(job.says(0, "continuing with 2 workers (was 3)"));
  job.signal(2, SIGKILL);
  ASSERT_TRUE(job.says(0, "continuing with 1 workers (was 2)"));
  job.signal(0, SIGUSR1);
  EXPECT_EQ(job.wait(0).ran.code, 75);
}

// Two at once: the second loss interrupts the recovery from the first.
TEST_F(ProcessLosses, TwoWorkersThatSumAreLostAtOnce) {
  const std::string path = solver("at_once", "scheme { type: 'bsp' } exchange { way: TREE }");
  JobProcesses job(job_folder("at_once"), "bbbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 ("));
  job.signal(1, SIGKILL);
  job.signal(3, SIGKILL);
  ASSERT_TRUE(job.says(0, "continuing with 2 workers")) << job.wait(0).ran.err;
  job.signal(0, SIGUSR1);
  for (const std::size_t rank : {0u, 2u}) EXPECT_EQ(job.wait(rank).ran.code, 75);
}

// With one copy the params of a lost server are what its workers read last.
TEST_F(ProcessLosses, WithOneCopyWorkersGoOnFromWhatTheyReadLast) {
  for (const char* const scheme : {"bsp", "async"}) {
    const std::string path =
        solver(str("one_", scheme), str("scheme { type: '", scheme, "' } copies: 1", kTable));
    JobProcesses job(job_folder(str("one_", scheme)), "bbb");
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(path);
    ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
    job.signal(2, SIGKILL);
    ASSERT_TRUE(job.says(0, "its params have no second copy (copies: 1): workers go on from what"));
    ASSERT_TRUE(job.says(0, "continuing with 2 workers (was 3)"));
    end(job, 2);
  }
}

// Two processes of four, one after the other.
TEST_F(ProcessLosses, AJobSurvivesOneLossAfterAnother) {
  const std::string path = solver("twice", str("scheme { type: 'bsp' }", kTable));
  JobProcesses job(job_folder("twice"), "bbbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 ("));
  job.signal(3, SIGKILL);
  ASSERT_TRUE(job.says(0, "continuing with 3 workers (was 4)"));
  job.signal(1, SIGKILL);
  ASSERT_TRUE(job.says(0, "continuing with 2 workers (was 3)"));
  job.signal(0, SIGUSR1);
  EXPECT_EQ(job.wait(0).ran.code, 75);
  EXPECT_EQ(job.wait(2).ran.code, 75);
}

// Each coordinator in turn, and a process that joins and asks where it finds none any more.
TEST_F(ProcessLosses, AJobSurvivesItsCoordinatorsOneAfterAnother) {
  const std::string path = solver("three", str("scheme { type: 'bsp' }", kTable));
  JobProcesses job(job_folder("three"), "bbbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 ("));
  job.signal(0, SIGKILL);
  ASSERT_TRUE(job.says(1, "continuing with 3 workers (was 4)")) << job.wait(1).ran.err;
  ASSERT_TRUE(job.says(1, "(* 1 = ")) << "trains, so that the servers have its params";
  job.signal(1, SIGKILL);
  ASSERT_TRUE(job.says(2, "continuing with 2 workers (was 3)")) << job.wait(2).ran.err;
  ASSERT_TRUE(job.says(2, "(* 1 = "));
  Running joined = start_program(job.joining(
      path, {str("--join=127.0.0.1:", job.port(0), ",127.0.0.1:", job.port(3)), "--role=both"}));
  ASSERT_TRUE(job.says(2, "continuing with 3 workers (was 2)")) << job.wait(2).ran.err;
  job.signal(3, SIGUSR1);
  for (const std::size_t rank : {2u, 3u}) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 75) << ran.err;
  }
  const Ran other = wait_for(joined);
  EXPECT_EQ(other.code, 75) << other.err;
  EXPECT_NE(newest_snapshot(folder_ + "/three"), "");
}

// Process 0 leaves in order, and others coordinate and write the snapshots.
TEST_F(ProcessLosses, ACoordinatorThatIsToldToLeaveHandsOver) {
  for (const char* const scheme : {"bsp", "async"}) {
    SCOPED_TRACE(scheme);
    const std::string name = str("leave_", scheme);
    const std::string path = solver(name, str("scheme { type: '", scheme, "' }", kTable));
    JobProcesses job(job_folder(name), "bbb");
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(path);
    ASSERT_TRUE(job.says(0, "Iteration 5 ("));
    job.signal(0, SIGTERM);
    const JobProcesses::Ended left = job.wait(0);
    EXPECT_EQ(left.ran.code, 75) << left.ran.err;
    EXPECT_HAS(left.ran.err, "this process has left the job, which goes on without it");
    std::cout << "  " << scheme << ": left after " << left.seconds << " s" << std::endl;
    ASSERT_TRUE(job.says(1, "continuing with 2 workers (was 3)")) << job.wait(1).ran.err;
    ASSERT_TRUE(job.says(1, "Iteration "));
    end(job, 0);
    EXPECT_NE(newest_snapshot(folder_ + "/" + name), "");
  }
}

// The only server leaves in order: a worker holds the params, with their histories, and coordinates
// if the server did.
TEST_F(ProcessLosses, TheOnlyServerHandsItsRowsToAWorker) {
  for (const char* const roles : {"sww", "bww", "wsw"}) {
    SCOPED_TRACE(roles);
    const std::string name = str("last_", roles);
    const std::string path = solver(name, str("scheme { type: 'bsp' }", kTable));
    JobProcesses job(job_folder(name), roles);
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(path);
    const std::size_t server = roles[0] == 'w' ? 1 : 0;
    const std::size_t chief = roles[0] == 'w' ? 0 : 1, first = roles[0] == 'b' ? 0 : chief;
    ASSERT_TRUE(job.says(first, "Iteration 5 (")) << job.wait(first).ran.err;
    job.signal(server, SIGTERM);
    const JobProcesses::Ended left = job.wait(server);
    EXPECT_EQ(left.ran.code, 75) << left.ran.err;
    ASSERT_TRUE(job.says(chief, "continuing with 2 workers (was ")) << job.wait(chief).ran.err;
    constexpr const char* kHolds = "holds the params from now on: no server is left";
    EXPECT_TRUE(server == 0 ? left.ran.err.find(kHolds) != std::string::npos : job.says(0, kHolds));
    ASSERT_TRUE(job.says(chief, kFirstIteration, first == chief ? 2 : 1));
    end(job, server);
    EXPECT_NE(newest_snapshot(folder_ + "/" + name), "");
  }
}

// All that the job began with are killed in turn, and replaced. The one that came first coordinates
// at last.
TEST_F(ProcessLosses, AProcessThatJoinedCoordinatesAndTakesOthersIn) {
  const std::string path = solver("replaced", str("scheme { type: 'async' } copies: 2", kTable));
  JobProcesses job(job_folder("replaced"), "bbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 ("));
  std::string every;
  for (std::size_t rank = 0; rank < 3; ++rank)
    every += str(rank == 0 ? "" : ",", "127.0.0.1:", job.port(rank));
  std::vector<Running> joined;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(rank);
    if (rank > 0) {
      ASSERT_TRUE(job.says(rank, kFirstIteration, 2));
    }
    job.signal(rank, SIGKILL);
    constexpr const char* kWithout = "continuing with 2 workers (was 3)";
    ASSERT_TRUE(rank < 2 ? job.says(rank + 1, kWithout) : wait_for_text(joined[0], kWithout));
    joined.push_back(start_program({tools_dir() + "/train", "--solver=" + path, "--join=" + every,
                                    str("--port=", job.port(rank)), "--role=both", "--threads=1",
                                    "--emulate_step_ms=4"}));
    ASSERT_TRUE(wait_for_text(joined.back(), "has joined the job, as worker"))
        << wait_for(joined.back()).err;
  }
  ::kill(joined[0].process, SIGUSR1);
  for (const Running& each : joined) EXPECT_EQ(wait_for(each).code, 75);
}

// Both standbys are lost before the coordinator is: those that took their place know as much.
TEST_F(ProcessLosses, AStandbyThatCameLaterTakesOver) {
  const std::string path = solver("later", str("scheme { type: 'async' } copies: 2", kTable));
  JobProcesses job(job_folder("later"), "bbbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 ("));
  job.signal(1, SIGKILL);
  ASSERT_TRUE(job.says(0, "continuing with 3 workers (was 4)")) << job.wait(0).ran.err;
  ASSERT_TRUE(job.says(0, kFirstIteration, 2));
  job.signal(2, SIGKILL);
  ASSERT_TRUE(job.says(0, "continuing with 2 workers (was 3)")) << job.wait(0).ran.err;
  ASSERT_TRUE(job.says(0, kFirstIteration, 3));
  job.signal(0, SIGKILL);
  ASSERT_TRUE(job.says(3, "This process, rank 3, coordinates it from now on"))
      << job.wait(3).ran.err;
  ASSERT_TRUE(job.says(3, "continuing with 1 workers (was 2)")) << job.wait(3).ran.err;
  job.signal(3, SIGUSR1);
  EXPECT_EQ(job.wait(3).ran.code, 75);
}

// The snapshots of a job may be on the machine of the chief that was lost.
TEST_F(ProcessLosses, AChiefThatFindsNoSnapshotWritesOne) {
  const std::string path =
      solver("heir", str("snapshot: 50000000 scheme { type: 'bsp' } copies: 2", kTable));
  JobProcesses job(job_folder("heir"), "bbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 ("));
  job.signal(0, SIGKILL);
  ASSERT_TRUE(job.says(1, "is no snapshot under")) << job.wait(1).ran.err;
  ASSERT_TRUE(job.says(1, "Snapshotting solver state")) << job.wait(1).ran.err;
  end(job, 0);
}

TEST_F(ProcessLosses, WithTooFewWorkersAllStopAndCanBeContinued) {
  for (const char* const way : {"TABLE", "RING"}) {
    const std::string path =
        solver(str("few_", way),
               str("scheme { type: 'bsp' } copies: 2 min_workers: 3 exchange { way: ", way, " }"));
    JobProcesses job(job_folder(str("few_", way)), "bbb");
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(path);
    ASSERT_TRUE(job.says(0, "Iteration 5 ("));
    job.signal(1, SIGKILL);
    for (const std::size_t rank : {0u, 2u}) {
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 75) << ran.err;
      if (rank == 0) {
        EXPECT_HAS(ran.err, "2 workers are left, and min_workers is 3");
      }
    }
    EXPECT_NE(newest_snapshot(folder_ + "/few_" + way), "");
  }
}

TEST_F(ProcessLosses, EachLossEndsAJobIfOnLostSaysSo) {
  JobProcesses job(job_folder("stop"), "bbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(solver("stop", str("scheme { type: 'bsp' } copies: 2 on_lost: STOP", kTable)));
  ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
  job.signal(1, SIGKILL);
  for (const std::size_t rank : {0u, 2u}) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 6) << ran.err;
    if (rank == 0) {
      EXPECT_HAS(ran.err, "ends the job (on_lost: STOP)");
    }
  }
}

}  // namespace
}  // namespace shoal::test::process_losses_test
