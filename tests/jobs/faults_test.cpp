// Tests jobs of real train processes with on_lost: STOP, of which one dies, stops, never comes or
// is cut off: all others end by themselves, and say why.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <iostream>
#include <memory>

#include "shoal/base/file.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/job_processes.h"

namespace shoal::test::process_faults_test {
namespace {

// Seconds in which a process must have ended, for a machine with much other load.
constexpr double kBounded = 20;
// Gives a net with 5000 outputs about ten iterations a second, and little work.
constexpr const char* kSlowly = "--throttle=16000000";

class ProcessFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("process_faults");
  }

  // Returns a net of two products, the first with `outputs` outputs, on numbers drawn by each
  // process.
  static std::string net(int outputs = 16) {
    return R"(name: 'drawn'
      layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { shape { dim: 4 dim: 36 } shape { dim: 4 }
        data_filler { type: 'gaussian' std: 1 } data_filler { type: 'constant' value: 1 } } }
      layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
        inner_product_param { num_output: )" +
           std::to_string(outputs) + R"( weight_filler { type: 'xavier' } } }
      layer { name: 'out' type: 'InnerProduct' bottom: 'ip' top: 'out' inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }
      layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'out' bottom: 'label' top: 'loss' })";
  }
  std::string snapshots(const std::string& name) const { return folder_ + "/" + name; }
  // Writes a solver and its net, with snapshots at snapshots(name). Returns its path.
  std::string solver(const std::string& name, const std::string& more,
                     const std::string& of = net()) const {
    const std::string path = folder_ + "/" + name + ".prototxt";
    put_file(path + ".net", of);
    put_file(path, "net: '" + path +
                       ".net' base_lr: 0.001 momentum: 0.9 lr_policy: 'fixed' random_seed: 3 "
                       "display: 1 on_lost: STOP snapshot_prefix: '" +
                       snapshots(name) + "' " + more);
    return path;
  }
  // Makes a folder for a job of its own.
  std::string job_folder(const std::string& name) const {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(path);
    return path;
  }

  std::string folder_;
};

// ---- SIGKILL ----

struct Victim {
  std::string roles;
  std::size_t rank;
};
// The victims have each role: coordinator and both, both, coordinator and server, server, worker,
// coordinator and worker.
const std::vector<Victim> kVictims = {{"bbb", 0}, {"bbb", 2}, {"sww", 0},
                                      {"wsw", 1}, {"wsw", 2}, {"wsw", 0}};

struct Stage {
  std::string name, fields;  // of the solver
  int outputs;               // of the net's first product
  std::string text;          // the chief's, at which the victim dies
  // The iteration of a snapshot that is on the disk by then; 0 if none is.
  int whole;
  bool slowly;  // for longer than a heartbeat, so that the last clock is known
};
const std::vector<Stage> kStages = {
    {"joined", "max_iter: 100000000", 16, "Scheme bsp", 0, false},
    {"training", "max_iter: 100000000 snapshot: 10 snapshot_keep: 2", 5000, "Iteration 15 (", 10,
     true},
    {"testing",
     "max_iter: 100000000 snapshot: 10 test_iter: 100000000 test_interval: 15 test_initialization: "
     "false",
     16, "Iteration 15, Testing net", 10, false},
    {"snapshot", "max_iter: 100000000 snapshot: 1 snapshot_keep: 2", 20'000, "_iter_3.caffemodel",
     2, false},
    {"last_snapshot",
     "max_iter: 20 snapshot: 10 test_iter: 100000000 test_interval: 20 test_initialization: false",
     20'000, "_iter_20.caffemodel", 10, false},
    {"last_test", "max_iter: 20 test_iter: 100000000 test_interval: 20 test_initialization: false",
     16, "Iteration 20, Testing net", 20, false},
};

class ProcessKilled : public ProcessFaults, public testing::WithParamInterface<Stage> {
 protected:
  static std::size_t chief(const std::string& roles) { return roles.find_first_not_of('s'); }

  // Expects a snapshot of `iteration` or later, and that the newest is good.
  void expect_whole(const std::string& name, int iteration) {
    const std::string newest = newest_snapshot(snapshots(name));
    ASSERT_NE(newest, "");
    const std::string stem = newest.substr(0, newest.rfind('.'));
    EXPECT_EQ(why_damaged(stem), "");
    EXPECT_GE(std::stoi(stem.substr(stem.rfind('_') + 1)), iteration);
  }

  // Expects the end of all others, after the victim's.
  void expect_named(JobProcesses& job, const Victim& victim, bool last_clock) {
    EXPECT_EQ(job.wait(victim.rank).ran.code, 128 + SIGKILL);
    double slowest = 0;
    bool clock = false;
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      if (rank == victim.rank) continue;
      const JobProcesses::Ended ended = job.wait(rank);
      EXPECT_EQ(ended.ran.code, 6) << "rank " << rank << ": " << ended.ran.err;
      EXPECT_HAS(ended.ran.err, str("rank ", victim.rank, " (host "));
      EXPECT_HAS(ended.ran.err, "killed");
      EXPECT_LT(ended.seconds, kBounded);
      slowest = std::max(slowest, ended.seconds);
      clock = clock || ended.ran.err.find("last clock") != std::string::npos;
    }
    EXPECT_TRUE(clock || !last_clock);
    std::cout << "  of " << victim.roles << " rank " << victim.rank
              << " was killed: all had ended after " << slowest << " s" << std::endl;
  }
};

TEST_P(ProcessKilled, EndsAllOthersWithItsName) {
  const Stage& stage = GetParam();
  const auto name = [&](const Victim& victim) {
    return str(stage.name, victim.roles, victim.rank);
  };
  std::vector<std::unique_ptr<JobProcesses>> jobs;
  const auto start_next = [&] {
    const Victim& victim = kVictims[jobs.size()];
    jobs.push_back(std::make_unique<JobProcesses>(job_folder(name(victim) + ".job"), victim.roles));
    if (stage.slowly) jobs.back()->flags.push_back(kSlowly);
    jobs.back()->start_all(solver(name(victim), stage.fields, net(stage.outputs)));
  };
  while (stage.slowly && jobs.size() < kVictims.size()) start_next();
  for (std::size_t i = 0; i < kVictims.size(); ++i) {
    const Victim& victim = kVictims[i];
    SCOPED_TRACE(name(victim));
    if (jobs.size() == i) start_next();
    JobProcesses& job = *jobs[i];
    ASSERT_TRUE(job.says(chief(victim.roles), stage.text)) << job.wait(chief(victim.roles)).ran.err;
    job.signal(victim.rank, SIGKILL);
    expect_named(job, victim, stage.slowly && victim.roles[victim.rank] != 's');
    if (stage.whole > 0) expect_whole(name(victim), stage.whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, ProcessKilled, testing::ValuesIn(kStages),
                         [](const auto& info) { return info.param.name; });

TEST_F(ProcessKilled, BeforeAllHaveJoined) {
  for (const Victim& victim : kVictims) {
    // Rank 2 is the one that never starts.
    if (victim.rank == 2 || (victim.roles == "wsw" && victim.rank == 0)) continue;
    JobProcesses job(job_folder("early.job"), victim.roles);
    const std::string path = solver("early", "max_iter: 10");
    job.flags.push_back("--stall_warn=1");
    job.start(0, path), job.start(1, path);
    ASSERT_TRUE(job.says(0, "rank 2 of 3 has not joined")) << job.wait(0).ran.err;
    job.signal(victim.rank, SIGKILL);
    job.wait(victim.rank);
    const JobProcesses::Ended ended = job.wait(1 - victim.rank);
    EXPECT_EQ(ended.ran.code, 6) << ended.ran.err;
    EXPECT_HAS(ended.ran.err, victim.rank == 0 ? "rank 0 (at 127.0.0.1:" : "rank 1 (host ");
    EXPECT_HAS(ended.ran.err, "killed");
    EXPECT_LT(ended.seconds, kBounded);
    std::cout << "  rank " << victim.rank
              << " was killed before rank 2 had joined: the other had ended after " << ended.seconds
              << " s" << std::endl;
  }
}

TEST_F(ProcessFaults, AJobGoesOnFromTheSnapshotOfOneThatWasKilled) {
  const std::string path = solver("again", "max_iter: 100000000 snapshot: 10 snapshot_keep: 2");
  JobProcesses job(job_folder("again.job"), "bbw");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 25 ("));
  job.signal(1, SIGKILL);
  for (std::size_t rank = 0; rank < job.size(); ++rank) job.wait(rank);
  const std::string newest = newest_snapshot(snapshots("again"));
  JobProcesses next(job_folder("again.next"), "bbw");
  next.start_all(path, {"--snapshot=auto"});
  EXPECT_TRUE(next.says(0, "Resuming from " + newest));
  EXPECT_TRUE(next.says(0, "(* 1 = "));
  next.signal(0, SIGUSR1);
  for (std::size_t rank = 0; rank < next.size(); ++rank) EXPECT_EQ(next.wait(rank).ran.code, 75);
}

// ---- SIGSTOP ----

TEST_F(ProcessFaults, AStoppedProcessIsNamedThenGivenUpAndDoesNoHarmWhenItGoesOn) {
  std::vector<std::unique_ptr<JobProcesses>> jobs;
  for (const Victim& victim : kVictims) {
    const std::string name = str("stopped", victim.roles, victim.rank);
    jobs.push_back(std::make_unique<JobProcesses>(job_folder(name + ".job"), victim.roles));
    for (const char* const flag : {"--stall_warn=1", "--stall_abort=3", kSlowly})
      jobs.back()->flags.push_back(flag);
    jobs.back()->start_all(
        solver(name, "max_iter: 100000000 snapshot: 10 snapshot_keep: 2", net(5000)));
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(jobs[i]->says(kVictims[i].roles.find_first_not_of('s'), "Iteration 15 ("));
    jobs[i]->signal(kVictims[i].rank, SIGSTOP);
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Victim& victim = kVictims[i];
    SCOPED_TRACE(str(victim.roles, " ", victim.rank));
    const std::string who = str("rank ", victim.rank, " (host ");
    std::size_t warned = 0;
    for (std::size_t rank = 0; rank < jobs[i]->size(); ++rank) {
      if (rank == victim.rank) continue;
      const JobProcesses::Ended ended = jobs[i]->wait(rank);
      // A process does not pass on that it gave the coordinator up. So another process may first
      // miss one that has given it up and left.
      const bool missed_another = victim.rank == 0 && ended.ran.code == 6;
      EXPECT_TRUE(ended.ran.code == 8 || missed_another)
          << "rank " << rank << ": " << ended.ran.err;
      EXPECT_HAS(ended.ran.err, who);
      EXPECT_LT(ended.seconds, 3 + kBounded);
      const std::size_t warning = ended.ran.err.find("has been silent for"),
                        end = ended.ran.err.rfind(who);
      warned += warning != std::string::npos && warning < end &&
                ended.ran.err.rfind(who, warning) != std::string::npos;
    }
    EXPECT_GE(warned, 1u);
    const std::string newest =
        newest_snapshot(snapshots(str("stopped", victim.roles, victim.rank)));
    ASSERT_NE(newest, "");
    const std::string bytes = get_file(newest);
    jobs[i]->signal(victim.rank, SIGCONT);
    const JobProcesses::Ended ended = jobs[i]->wait(victim.rank);
    // It notices one of two things first: the others have gone, or it has not heard of them for as
    // long as it stood still.
    EXPECT_TRUE(ended.ran.code == 6 || ended.ran.code == 8)
        << ended.ran.code << ": " << ended.ran.err;
    EXPECT_LT(ended.seconds, kBounded);
    // The chief may have stopped while it wrote the next one, and have finished it.
    const std::string last = newest_snapshot(snapshots(str("stopped", victim.roles, victim.rank)));
    const bool is_chief = victim.rank == victim.roles.find_first_not_of('s');
    EXPECT_TRUE(last == newest || is_chief) << last;
    EXPECT_EQ(get_file(newest), bytes);
    for (const std::string& whole : {last, newest})
      EXPECT_EQ(why_damaged(whole.substr(0, whole.rfind('.'))), "");
  }
}

TEST_F(ProcessFaults, AWorkerThatWaitsForItsOwnServerSaysSoOnceAPeriod) {
  JobProcesses job(job_folder("own.job"), "bw");
  for (const char* const flag : {"--stall_warn=1", "--stall_abort=4", kSlowly})
    job.flags.push_back(flag);
  job.start_all(solver("own", "max_iter: 100000000", net(5000)));
  ASSERT_TRUE(job.says(0, "Iteration 15 ("));
  job.signal(1, SIGSTOP);
  const auto [ran, seconds] = job.wait(0);
  job.signal(1, SIGKILL);
  EXPECT_EQ(ran.code, 8) << ran.err;
  EXPECT_HAS(ran.err, " from its own server");
  EXPECT_EQ(ran.err.find(" from server "), std::string::npos) << ran.err;
  const auto count = [&ran = ran](const std::string& words) {
    int found = 0;
    for (std::size_t at = 0; (at = ran.err.find(words, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("has been silent for"), 1) << "of two connections: " << ran.err;
  EXPECT_GE(count("has waited for rows for"), 2) << ran.err;
  EXPECT_LE(count("has waited for rows for"), seconds + 1) << ran.err;
}

// ---- what cannot begin ----

TEST_F(ProcessFaults, WhoNeverStartsIsNamed) {
  const std::string path = solver("absent", "max_iter: 10");
  std::vector<std::unique_ptr<JobProcesses>> jobs;
  for (const std::size_t absent : {0u, 1u, 2u}) {
    jobs.push_back(std::make_unique<JobProcesses>(job_folder(str("absent.job", absent)), "bws"));
    jobs.back()->flags.push_back("--start_timeout=2");
    jobs.back()->flags.push_back("--stall_warn=1");
    for (std::size_t rank = 0; rank < 3; ++rank)
      if (rank != absent) jobs.back()->start(rank, path);
  }
  for (std::size_t absent = 0; absent < jobs.size(); ++absent) {
    SCOPED_TRACE(absent);
    JobProcesses& job = *jobs[absent];
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      if (rank == absent) continue;
      const JobProcesses::Ended ended = job.wait(rank);
      EXPECT_EQ(ended.ran.code, 8) << "rank " << rank << ": " << ended.ran.err;
      EXPECT_HAS(ended.ran.err, absent == 0 ? std::string("no coordinator at 127.0.0.1:")
                                            : str("rank ", absent, " of 3 has not joined"));
      if (absent == 0) {
        EXPECT_HAS(ended.ran.err, str("rank ", rank, " looks for process 0 at 127.0.0.1:"));
        EXPECT_HAS(ended.ran.err, "] after 1");  // 1 s, or 1.003
      }
      EXPECT_LT(ended.seconds, 2 + kBounded);
    }
  }
}

}  // namespace
}  // namespace shoal::test::process_faults_test
