// Tests jobs of real train processes that go on without one that is killed or stopped.
#include <gtest/gtest.h>
#include <signal.h>

#include <iostream>

#include "shoal/base/file.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/job_processes.h"
#include "support/solver_rig.h"

namespace shoal::test::process_losses_test {
namespace {

constexpr const char* kTable = " exchange { way: TABLE }";

class ProcessLosses : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("process_losses");
    make_digits(folder_ + "/data");
  }
  // Writes the small net with its random numbers, shared data, and no end.
  std::string solver(const std::string& name, const std::string& more) const {
    return put_small_solver(folder_, name,
                            "base_lr: 0.01 momentum: 0.9 max_iter: 100000000 display: 1 " + more);
  }
  std::string job_folder(const std::string& name) const {
    return fresh_directory("losses_" + name);
  }
  // Stops the job with a snapshot, which all processes but `lost` end with.
  void end(JobProcesses& job, std::size_t lost) const {
    job.signal(0, SIGTERM);
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      if (rank == lost) continue;
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 75) << "rank " << rank << ": " << ran.err;
    }
  }

  std::string folder_;
};

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
  ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
  job.signal(loss.victim, SIGKILL);
  EXPECT_EQ(job.wait(loss.victim).ran.code, 128 + SIGKILL);
  const bool worked = loss.roles[loss.victim] != 's';
  ASSERT_TRUE(job.says(0, str("continuing with ", loss.workers, " workers (was ",
                              loss.workers + (worked ? 1 : 0), ")")));
  ASSERT_TRUE(job.says(0, str("lost rank ", loss.victim, " (host ")));
  end(job, loss.victim);
  EXPECT_NE(newest_snapshot(folder_ + "/" + loss.name), "");
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, ProcessLost,
    testing::Values(Loss{"bsp", "bbb", 2, "type: 'bsp'", 2},
                    Loss{"ssp", "bbb", 1, "type: 'ssp' staleness: 2", 2},
                    Loss{"async_worker", "bbw", 2, "type: 'async'", 2},
                    Loss{"async_server", "bws", 2, "type: 'async'", 2},
                    Loss{"grouped", "bbb", 1, "type: 'grouped' groups: '0,1|2'", 2},
                    Loss{"backup", "bbb", 2, "type: 'sync_backup' backup: 1", 2},
                    Loss{"pool", "bbb", 1, "type: 'async' share_iterations: true", 2},
                    Loss{"esync", "bbb", 2, "type: 'esync' epsilon: 0.001 max_steps: 3", 2},
                    Loss{"drift", "bbb", 1, "type: 'drift_barrier' max_advance: 3", 2},
                    Loss{"elastic", "bbb", 1, "type: 'elastic' local_steps: 3", 2}),
    [](const auto& info) { return info.param.name; });

// A server that is lost changes no bit of a run by bsp: its rows are on another one, to the bit.
// The net draws no numbers, whose streams would begin anew with the next generation.
TEST_F(ProcessLosses, AServersLossChangesNothingUnderBsp) {
  const std::string net = str(
      "net_param { layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { "
      "scale: 0.01 } data_param { source: '",
      folder_,
      "/data' backend: DATUMFILE batch_size: 8 "
      "} } layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
      "num_output: 8 weight_filler { type: 'xavier' } } } layer { name: 'loss' type: "
      "'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } } ");
  std::string models[2];
  for (const bool loses : {false, true}) {
    const std::string name = loses ? "lossy" : "whole";
    const std::string path = put_small_solver(
        folder_, name,
        str(net, "base_lr: 0.01 momentum: 0.9 max_iter: 60 snapshot: 60 display: 1 ",
            "scheme { type: 'bsp' } copies: 2", kTable));
    JobProcesses job(job_folder(name), "wwss");
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(path);
    ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
    if (loses) job.signal(3, SIGKILL);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 0) << "rank " << rank << ": " << ran.err;
      if (rank == 0 && loses) {
        EXPECT_HAS(ran.err, "lost rank 3 (host ");
      }
    }
    models[loses] = get_file(snapshot_stem(folder_ + "/" + name, 60) + ".caffemodel");
  }
  EXPECT_TRUE(models[0] == models[1]);
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
  job.signal(0, SIGTERM);
  EXPECT_EQ(job.wait(0).ran.code, 75);
  EXPECT_EQ(job.wait(2).ran.code, 75);
}

TEST_F(ProcessLosses, AStoppedProcessIsCountedOutAndToldSoWhenItGoesOn) {
  const std::string path = solver("zombie", str("scheme { type: 'async' } copies: 2", kTable));
  JobProcesses job(job_folder("zombie"), "bbb");
  for (const char* const flag : {"--emulate_step_ms=4", "--lost_after=1"})
    job.flags.push_back(flag);
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 ("));
  job.signal(2, SIGSTOP);
  ASSERT_TRUE(job.says(0, "continuing with 2 workers (was 3)"));
  job.signal(2, SIGCONT);
  const JobProcesses::Ended ended = job.wait(2);
  EXPECT_EQ(ended.ran.code, 6) << ended.ran.err;
  EXPECT_HAS(ended.ran.err, "removed from the job, which goes on without it");
  end(job, 2);
}

TEST_F(ProcessLosses, WithTooFewWorkersAllStopAndCanBeContinued) {
  const std::string path =
      solver("few", str("scheme { type: 'bsp' } copies: 2 min_workers: 3", kTable));
  JobProcesses job(job_folder("few"), "bbb");
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
  EXPECT_NE(newest_snapshot(folder_ + "/few"), "");
}

// A process that cannot be lost is named so at the start, and at the end.
TEST_F(ProcessLosses, WhatAJobCannotLoseEndsIt) {
  struct Case {
    std::string name, roles, fields, at_start, at_end;
    std::size_t victim;
  };
  const std::vector<Case> cases = {
      {"sums", "bbb", "scheme { type: 'bsp' } exchange { way: TREE }",
       "ends the job, since workers exchange gradients among themselves",
       "its workers sum gradients, or exchange factors, among themselves", 2},
      {"stop", "bbb", str("scheme { type: 'bsp' } copies: 2 on_lost: STOP", kTable),
       "ends the job (on_lost: STOP)", "lost rank 1 (host ", 1},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    JobProcesses job(job_folder(one.name), one.roles);
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(solver(one.name, one.fields));
    ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
    job.signal(one.victim, SIGKILL);
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      if (rank == one.victim) continue;
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 6) << ran.err;
      if (rank == 0) {
        EXPECT_HAS(ran.err, one.at_start);
      }
      if (one.name != "stop") {
        EXPECT_HAS(ran.err, one.at_end);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::test::process_losses_test
