// Tests processes that join and leave jobs of real train processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "shoal/base/file.h"
#include "shoal/proto/io.h"
#include "shoal/proto/run.pb.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/job_processes.h"
#include "support/pattern.h"
#include "support/solver_rig.h"

namespace shoal::test::process_membership_test {
namespace {

class ProcessMembership : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("process_membership");
    make_digits(folder_ + "/data");
  }
  // Writes the small net with its random numbers, shared data, and no end.
  std::string solver(const std::string& name, const std::string& more) {
    return put_small_solver(folder_, name, "base_lr: 0.01 max_iter: 100000000 display: 1 " + more);
  }

  std::string folder_;
};

// Uses one scheme for each mechanism: rows alone, sums and factors among workers, groups, tasks
// from one pool, local steps that ask a pacer, and weights that are a worker's own.
// scheme_membership_test, drift_barrier_test, completion_window_test, esync_test and
// coordinator_shared_test cover every scheme's rule.
TEST_F(ProcessMembership, WithEachMechanism) {
  const std::vector<std::string> schemes = {
      "scheme { type: 'bsp' }",
      "scheme { type: 'bsp' } exchange { way: TREE layer { type: 'InnerProduct' way: FACTORS } }",
      "scheme { type: 'grouped' groups: '0,2|1' }",
      "scheme { type: 'async' share_iterations: true } codec { push: 'topk:0.1' min_count: 1 }",
      "scheme { type: 'esync' epsilon: 0.001 max_steps: 3 }",
      "scheme { type: 'elastic' local_steps: 3 }",
  };
  int number = 0;
  for (const std::string& scheme : schemes) {
    SCOPED_TRACE(scheme);
    const std::string path = solver(str("scheme", number), scheme);
    JobProcesses job(fresh_directory(str("process_membership_job", number++)), "bbw");
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(path);
    ASSERT_TRUE(job.says(0, "Iteration 3 ("));
    const Running joined = start_program(job.joining(path, {"--emulate_step_ms=4"}));
    ASSERT_TRUE(wait_for_text(joined, "has joined the job, as worker 3 of 4"));
    ASSERT_TRUE(job.says(0, "continuing with 4 workers (was 3)"));
    job.signal(2, SIGTERM);  // a worker
    const JobProcesses::Ended worker = job.wait(2);
    EXPECT_EQ(worker.ran.code, 75) << worker.ran.err;
    EXPECT_HAS(worker.ran.err, "has left the job");
    ASSERT_TRUE(job.says(0, "continuing with 3 workers (was 4)"));
    job.signal(1, SIGTERM);  // a worker and a server: its rows move
    const JobProcesses::Ended both = job.wait(1);
    EXPECT_EQ(both.ran.code, 75) << both.ran.err;
    ASSERT_TRUE(job.says(0, "continuing with 2 workers (was 3)"));
    std::cout << "  " << scheme << ": left after " << worker.seconds << " s and " << both.seconds
              << " s" << std::endl;
    job.signal(0, SIGUSR1);  // cannot be spared: all stop, with a snapshot
    const Ran chief = job.wait(0).ran, last = wait_for(joined);
    EXPECT_EQ(chief.code, 75) << chief.err;
    EXPECT_EQ(last.code, 75) << last.err;
    const std::string found = newest_snapshot(folder_ + str("/scheme", number - 1));
    ASSERT_NE(found, "");
    EXPECT_EQ(read_run_state(run_path(found.substr(0, found.rfind('.')))).member_size(), 1);
  }
}

// Returns the length of the global momentum in the snapshots of a run that is over, by iteration.
std::map<int, double> momentum_by_iteration(const std::string& prefix) {
  std::map<int, double> lengths;
  for (int i = 1;; ++i) {
    const std::string path = run_path(snapshot_stem(prefix, i));
    if (!file_exists(path)) return lengths;
    const RunState run = read_run_state(path);
    for (const auto& of_param : run.global_momentum())
      for (const float v : of_param.value()) lengths[i] += double{v} * v;
    lengths[i] = std::sqrt(lengths[i]);
  }
}

TEST_F(ProcessMembership, TheGlobalMomentumStaysWhenAWorkerLeaves) {
  const std::string path =
      solver("momentum", "snapshot: 1 scheme { type: 'local_steps' global_momentum: 0.95 }");
  JobProcesses job(folder_, "bw");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 20 ("));
  job.signal(1, SIGTERM);
  EXPECT_EQ(job.wait(1).ran.code, 75);
  ASSERT_TRUE(job.says(0, "continuing with 1 workers (was 2)"));
  job.signal(0, SIGUSR1);
  EXPECT_EQ(job.wait(0).ran.code, 75);
  const std::map<int, double> lengths = momentum_by_iteration(folder_ + "/momentum");
  ASSERT_GT(lengths.size(), 20u);
  for (int i = 10; i < static_cast<int>(lengths.size()); ++i)
    EXPECT_GT(lengths.at(i + 1), 0.6 * lengths.at(i)) << "iteration " << i;
}

// Returns the environment of ps-lite's launchers and of ESync's README, where no process has a
// number, and the command.
std::vector<std::string> by_dmlc(const std::string& role, int port,
                                 const std::vector<std::string>& flags,
                                 const std::string& root = "127.0.0.1") {
  std::vector<std::string> words{
      "/usr/bin/env",        "DMLC_ROLE=" + role,        "DMLC_NUM_WORKER=2",
      "DMLC_NUM_SERVER=1",   "DMLC_PS_ROOT_URI=" + root, str("DMLC_PS_ROOT_PORT=", port),
      "DMLC_INTERFACE=lo",   "DMLC_NODE_HOST=127.0.0.1", "PS_VERBOSE=1",
      tools_dir() + "/train"};
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

TEST_F(ProcessMembership, DmlcWithoutIds) {
  const Ran scheduler = run_program(by_dmlc("scheduler", 9091, {}));
  EXPECT_EQ(scheduler.code, 0) << scheduler.err;
  EXPECT_HAS(scheduler.err, "no such process is needed here");
  const std::string path = put_small_solver(
      folder_, "dmlc", "max_iter: 20 scheme { type: 'esync' epsilon: 0.001 max_steps: 3 }");
  const std::string rounds = folder_ + "/rounds.json";
  const ReservedPorts ports;
  std::vector<Running> all;
  for (const char* role : {"worker", "server", "worker"})
    all.push_back(start_program(
        by_dmlc(role, ports[0], {"--solver=" + path, "--threads=1", "--pace_json=" + rounds})));
  std::string ranks;
  for (const Running& one : all) {
    const Ran ran = wait_for(one);
    EXPECT_EQ(ran.code, 0) << ran.err;
    for (const char* rank : {"0", "1", "2"})
      if (ran.err.find(str("Process ", rank, " of 3, as ")) != std::string::npos) ranks += rank;
  }
  std::ranges::sort(ranks);
  EXPECT_EQ(ranks, "012");
  EXPECT_HAS(get_file(rounds), R"("num_workers": 2)");
  EXPECT_HAS(get_file(rounds), R"("records": [)");
  const Ran alone = run_program({tools_dir() + "/train", "--solver=" + path, "--pace_json=x"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_HAS(alone.err, "--pace_json=x: there is nothing to write in it, since one process alone");
}

// The address belongs to no machine (RFC 5737).
TEST_F(ProcessMembership, NobodyToGiveRanksIsTold) {
  const Ran worker = run_program(by_dmlc(
      "worker", 9091, {"--solver=" + solver("lonely", ""), "--start_timeout=1", "--insecure"},
      "192.0.2.1"));
  EXPECT_EQ(worker.code, 6) << worker.err;
  EXPECT_HAS(worker.err, "Asking process 0 at 192.0.2.1:9091 for a rank");
  EXPECT_HAS(worker.err, "that starts on the machine of 192.0.2.1:9091: has one been started");
}

TEST_F(ProcessMembership, OneTooManyWithoutIdsIsTold) {
  const std::vector<std::string> flags{"--solver=" + solver("many", ""), "--threads=1"};
  const ReservedPorts ports;
  std::vector<Running> all;
  for (const char* role : {"server", "worker", "worker"})
    all.push_back(start_program(by_dmlc(role, ports[0], flags)));
  for (const Running& one : all) ASSERT_TRUE(wait_for_text(one, " of 3, as "));
  const Ran fourth = run_program(by_dmlc("worker", ports[0], flags));
  EXPECT_EQ(fourth.code, 6);
  EXPECT_HAS(fourth.err, "has all its 3 processes already: this one is one too many");
  for (const Running& one : all) {
    ::kill(one.process, SIGTERM);
    (void)wait_for(one);
  }
}

// Pushes wait for others' in this scheme, and none may wait for a worker that has stopped.
TEST_F(ProcessMembership, SnapshotsWhereSomeWaitForOthers) {
  for (const std::string scheme :
       {"type: 'grouped' groups: '0,1|2'", "type: 'grouped' groups: '0,1,2'",
        "type: 'sync_backup' backup: 1"}) {
    SCOPED_TRACE(scheme);
    const std::string path =
        put_small_solver(folder_, "saves", "max_iter: 40 snapshot: 2 scheme { " + scheme + " }");
    JobProcesses job(fresh_directory("process_membership_saves"), "bbw");
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(path);
    for (const std::size_t rank : {0u, 1u, 2u}) {
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 0) << ran.err;
      EXPECT_EQ(ran.err.find("Snapshotting") != std::string::npos, rank == 0);
    }
  }
}

// Turns a job of one process into one of three, with a server more, and one of one again.
TEST_F(ProcessMembership, FromOneToThreeAndBack) {
  const std::string path = solver("alone", "test_iter: 3 test_interval: 50");
  JobProcesses job(fresh_directory("process_membership_alone"), "b");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 3 ("));
  const Running first = start_program(job.joining(path, {"--role=both"}));
  ASSERT_TRUE(wait_for_text(first, "has joined the job, as worker 1 of 2"));
  const Running second = start_program(job.joining(path));
  ASSERT_TRUE(wait_for_text(second, "has joined the job, as worker 2 of 3"));
  ::kill(first.process, SIGTERM);
  const Ran left = wait_for(first);
  EXPECT_EQ(left.code, 75) << left.err;
  ASSERT_TRUE(job.says(0, "continuing with 2 workers (was 3)"));
  ::kill(second.process, SIGTERM);
  EXPECT_EQ(wait_for(second).code, 75);
  ASSERT_TRUE(job.says(0, "continuing with 1 workers (was 2)"));
  job.signal(0, SIGINT);
  const Ran chief = job.wait(0).ran;
  EXPECT_EQ(chief.code, 0) << chief.err;
}

TEST_F(ProcessMembership, ASignalToAServerAloneIsForAll) {
  const std::string path = solver("signals", "");
  for (const auto& [number, code] : {std::pair{SIGUSR1, 75}, {SIGINT, 0}, {SIGHUP, 75}}) {
    SCOPED_TRACE(number);
    JobProcesses job(fresh_directory("process_membership_signals"), "bsw");
    job.start_all(path);
    ASSERT_TRUE(job.says(0, "Iteration 3 ("));
    job.signal(1, number);
    if (number == SIGHUP) {
      ASSERT_TRUE(job.says(0, "Snapshotting to"));
      job.signal(0, SIGUSR1);
    }
    for (const std::size_t rank : {0u, 1u, 2u}) {
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, code) << ran.err;
    }
  }
}

// None of these processes disturbs the job.
TEST_F(ProcessMembership, WhoDoesNotBelongIsRefused) {
  const std::string path = solver("good", ""), other = solver("other", "momentum2: 0.5"),
                    parts = folder_ + "/parts.prototxt";
  put_file(parts,
           replaced(get_file(path), "shared_file_system: true", "shared_file_system: false"));
  JobProcesses job(fresh_directory("process_membership_refused"), "bw");
  put_file(folder_ + "/token", "secret");
  put_file(folder_ + "/wrong", "guess");
  job.flags.push_back("--token_file=" + folder_ + "/token");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 3 ("));
  const auto refused = [&](const std::string& solver, const std::string& token,
                           const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = job.joining(solver, {"--token_file=" + folder_ + "/" + token});
    words.insert(words.end(), more.begin(), more.end());
    const Ran ran = run_program(words);
    EXPECT_NE(ran.code, 0);
    return ran.err;
  };
  EXPECT_HAS(refused(path, "wrong"), "A process that wants to join has another token");
  EXPECT_HAS(refused(other, "token"), "trains with 'momentum2: 0.5' where rank 0");
  EXPECT_HAS(refused(parts, "token"), "does not exist");
  EXPECT_HAS(refused(path, "token", {"--client_id=1"}), "--join=127.0.0.1:");
  EXPECT_HAS(
      refused(path, "token", {"--role=both", "--advertise=127.0.0.1:1"}),
      "the coordinator cannot reach the server that wants to join: No connection to 127.0.0.1:1");
  const Running good = start_program(job.joining(path, {"--token_file=" + folder_ + "/token"}));
  ASSERT_TRUE(wait_for_text(good, "has joined the job"));
  job.signal(0, SIGINT);
  EXPECT_EQ(wait_for(good).code, 0);
  for (const std::size_t rank : {0u, 1u}) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 0) << ran.err;
  }
  EXPECT_HAS(run_program(job.joining(path)).err, "no job can be joined at 127.0.0.1:");
}

// Rank 1 is not there yet.
TEST_F(ProcessMembership, WhoDoesNotBelongIsRefusedBeforeTheJobBegins) {
  const std::string path = solver("waits", ""), other = solver("differs", "momentum2: 0.5");
  JobProcesses job(fresh_directory("process_membership_early"), "bw");
  job.start(0, path);
  const Ran differs = run_program(job.joining(other));
  EXPECT_EQ(differs.code, 3) << differs.err;
  EXPECT_HAS(differs.err, "trains with 'momentum2: 0.5' where rank 0");
  const Ran far = run_program(job.joining(path, {"--role=both", "--advertise=127.0.0.1:1"}));
  EXPECT_EQ(far.code, 6) << far.err;
  EXPECT_HAS(far.err, "the coordinator cannot reach the server that wants to join");
  job.start(1, path);
  ASSERT_TRUE(job.says(0, "Iteration 3 ("));
  job.signal(0, SIGINT);
  for (const std::size_t rank : {0u, 1u}) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 0) << ran.err;
  }
}

}  // namespace
}  // namespace shoal::test::process_membership_test
