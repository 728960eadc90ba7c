// Tests jobs of real train processes that find their groups by speed.
#include <gtest/gtest.h>
#include <signal.h>

#include "shoal/base/file.h"
#include "shoal/base/text.h"
#include "shoal/data/partition.h"
#include "shoal/solver/snapshot.h"
#include "support/data_files.h"
#include "support/job_processes.h"
#include "support/solver_rig.h"

namespace shoal::test::process_groups_test {
namespace {

class ProcessGroups : public testing::Test {
 protected:
  void SetUp() override {
    if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR does not say where the tools are";
    folder_ = fresh_directory("process_groups");
    make_digits(folder_ + "/data");
  }
  std::string solver() const { return folder_ + "/model.prototxt"; }
  void write_solver(const std::string& more) const {
    put_small_solver(folder_, "model", "base_lr: 0.02 snapshot_after_train: true " + more);
  }
  // Trains workers of which worker k emulates so many milliseconds for an iteration; process 0 is a
  // server alone if `roles` say so.
  std::vector<Ran> train(const std::string& roles, const std::vector<int>& step_ms,
                         const std::string& more, const std::vector<std::string>& flags = {}) {
    write_solver("display: 4 " + more);
    JobProcesses job(folder_, roles);
    for (std::size_t rank = 0; rank < roles.size(); ++rank) {
      std::vector<std::string> own = flags;
      own.push_back(str("--emulate_step_ms=", step_ms[rank]));
      job.start(rank, solver(), own);
    }
    std::vector<Ran> all;
    for (std::size_t rank = 0; rank < roles.size(); ++rank) {
      all.push_back(job.wait(rank).ran);
      EXPECT_EQ(0, all.back().code) << all.back().err;
    }
    return all;
  }
  // Ends processes 0 and 1, and the process that joined them, by a stop of process 0.
  static void end_well(JobProcesses& job, const Running& joined) {
    job.signal(0, SIGINT);
    EXPECT_EQ(wait_for(joined).code, 0);
    for (const std::size_t rank : {0u, 1u}) {
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 0) << ran.err;
    }
  }
  std::vector<std::string> files() const {
    return {"--groups_out=" + folder_ + "/groups",
            "--data_sharding_out=" + folder_ + "/data_sharding"};
  }

  std::string folder_;
};

TEST_F(ProcessGroups, AreFoundAndTrainedWithAndReadAgain) {
  const std::string by_speed =
      "max_iter: 14 test_iter: 2 test_interval: 7 scheme { type: 'grouped' group_by: SPEED "
      "profile_iterations: 8 min_group_size: 2 }";
  const auto first = train("bbbb", {400, 100, 400, 100}, by_speed, files());
  EXPECT_HAS(first[0].err, "Scheme async; ");
  EXPECT_HAS(first[0].err, "Iteration 8: speeds ");
  EXPECT_HAS(first[0].err, " items/s; 2 groups (Calinski-Harabasz index ");
  EXPECT_HAS(first[0].err,
             "Iteration 8: scheme async ends, grouped groups=1,3|0,2 begins, until iteration 14");
  EXPECT_EQ(get_file(folder_ + "/groups"), "1 3\n0 2\n")
      << "all are on one machine, whose address names none of them";
  const PartBounds parts =
      or_throw(bounds_by_sharding(get_file(folder_ + "/data_sharding"), "data_sharding", 1000));
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_EQ(parts[4], 1000u);
  for (const std::size_t slow : {0, 2}) {
    EXPECT_LT(2 * (parts[slow + 1] - parts[slow]), parts[slow + 2] - parts[slow + 1])
        << "a slow one has a smaller part than the one after it";
  }
  EXPECT_TRUE(file_exists(model_path(snapshot_stem(folder_ + "/model", 14))));

  // One run has written the file, and the other reads it.
  const auto again =
      train("bbbb", {0, 0, 0, 0},
            "max_iter: 4 scheme { type: 'grouped' groups_file: '" + folder_ + "/groups' }");
  EXPECT_HAS(again[0].err, "Scheme grouped groups=1,3|0,2; ");
  // A run that goes on where the last one ended measures the speeds anew.
  const auto on = train("bbbb", {100, 100, 400, 400},
                        "max_iter: 24 scheme { type: 'grouped' group_by: SPEED profile_iterations: "
                        "8 min_group_size: 2 }",
                        {"--snapshot=" + state_path(snapshot_stem(folder_ + "/model", 14))});
  EXPECT_HAS(on[0].err,
             "Iteration 22: scheme async ends, grouped groups=0,1|2,3 begins, until iteration 24");
}

TEST_F(ProcessGroups, SharesMayBeBySpeedOrGiven) {
  const auto by_speed =
      train("bb", {90, 30}, "max_iter: 16", {"--share_by=speed", "--share_interval=6"});
  EXPECT_HAS(by_speed[0].err, " items/s; shares of the data ");
  EXPECT_HAS(by_speed[0].err, "Batch 16 divided as 4, 12 among workers 2");
  put_file(folder_ + "/sharding", "0 0.75\n0.75 1\n");
  const auto given =
      train("bb", {0, 0}, "max_iter: 4", {"--data_sharding=" + folder_ + "/sharding"});
  EXPECT_HAS(given[0].err, "Batch 16 divided as 12, 4 among workers 2");
}

TEST_F(ProcessGroups, CanBeAllThatIsAskedFor) {
  const std::vector<std::string> flags = {"--scheme=grouped", "--group_by=speed",
                                          "--profile_iterations=6", "--min_group_size=2",
                                          "--profile_only"};
  std::vector<std::string> with_files = flags;
  for (const std::string& file : files()) with_files.push_back(file);
  const auto ran = train("sww", {0, 40, 40}, "max_iter: 100000", with_files);
  EXPECT_HAS(ran[1].err, "; 1 group: 0,1");
  EXPECT_EQ(get_file(folder_ + "/groups"), "0 1\n");
  EXPECT_HAS(get_file(folder_ + "/data_sharding"), "0 0.5\n0.5 1\n");
  EXPECT_EQ(ran[1].err.find("grouped groups="), std::string::npos) << ran[1].err;
}

// Without a bound between the groups all stop at the ends of their tasks for each measurement, and
// go on.
TEST_F(ProcessGroups, AreLookedAtAgainWithoutABound) {
  const auto ran = train("bbw", {100, 33, 33},
                         "max_iter: 110 scheme { type: 'grouped' group_by: SPEED "
                         "profile_iterations: 6 regroup_interval: 5 }");
  EXPECT_HAS(ran[0].err, "Iteration 6: scheme async ends, grouped");
  std::size_t looks = 0;
  for (std::size_t at = ran[0].err.find(": speeds "); at != std::string::npos;
       at = ran[0].err.find(": speeds ", at + 1))
    ++looks;
  EXPECT_GE(looks, 4u) << ran[0].err;
  EXPECT_HAS(ran[0].err, "continuing with 3 workers (was 3), scheme grouped groups=1,2|0: rank 0");
}

// Measures processes that come and go too. Parts of the data stay unequal.
TEST_F(ProcessGroups, GoOnWithOthers) {
  write_solver(
      "max_iter: 100000000 display: 1 scheme { type: 'grouped' group_by: SPEED profile_iterations: "
      "6 regroup_interval: 12 }");
  JobProcesses job(folder_, "bbw");
  const int step_ms[] = {160, 40, 40};
  for (std::size_t rank = 0; rank < 3; ++rank)
    job.start(rank, solver(), {str("--emulate_step_ms=", step_ms[rank])});
  ASSERT_TRUE(job.says(0, "scheme grouped groups=1,2|0: "));
  const Running joined = start_program(job.joining(solver(), {"--emulate_step_ms=160"}));
  ASSERT_TRUE(wait_for_text(joined, "has joined the job, as worker 3 of 4"));
  ASSERT_TRUE(job.says(0, "continuing with 4 workers (was 4), scheme grouped groups=1,2|0,3"));
  job.signal(2, SIGTERM);
  EXPECT_EQ(job.wait(2).ran.code, 75);
  ASSERT_TRUE(job.says(0, "continuing with 3 workers (was 3), scheme grouped groups=1|0,2"));
  end_well(job, joined);
}

// A process that joins would count itself past the profile, which the others have begun anew.
TEST_F(ProcessGroups, WhoJoinsTheProfileOfARunThatWentOnEndsItWithTheOthers) {
  const std::string scheme = "scheme { type: 'grouped' group_by: SPEED profile_iterations: 6 }";
  train("bb", {0, 0}, "max_iter: 10 " + scheme);
  write_solver("max_iter: 100000000 display: 1 " + scheme);
  JobProcesses job(folder_, "bb");
  for (const std::size_t rank : {0u, 1u})
    job.start(rank, solver(),
              {"--emulate_step_ms=700",
               "--snapshot=" + state_path(snapshot_stem(folder_ + "/model", 10))});
  ASSERT_TRUE(job.says(0, "Starting Optimization"));
  const Running joined = start_program(job.joining(solver(), {"--emulate_step_ms=300"}));
  ASSERT_TRUE(wait_for_text(joined, "has joined the job, as worker 2 of 3"));
  ASSERT_TRUE(job.says(0, "continuing with 3 workers (was 2), scheme async: "));
  ASSERT_TRUE(job.says(0, "Iteration 16: scheme async ends, grouped groups=2|0,1 begins"));
  end_well(job, joined);
}

// Returns the bytes in "7 rows of params on 2 servers, with 40000, 8000 bytes, by", after the first
// place of `text`.
std::vector<std::size_t> bytes_after(const std::string& text, const std::string& first) {
  std::vector<std::size_t> bytes;
  const std::size_t at = text.find(first), with = text.find(", with ", at);
  if (at == std::string::npos || with == std::string::npos) return bytes;
  for (const std::string& word :
       split(text.substr(with + 7, text.find(" bytes", with) - with - 7), ' '))
    bytes.push_back(std::stoul(word));
  return bytes;
}

// One of two servers that are not workers can send and receive a fifth of what the other can.
TEST_F(ProcessGroups, SlowServersHoldLess) {
  write_solver("max_iter: 60");
  JobProcesses job(folder_, "wss");
  job.start(0, solver(), {"--placement=measured"});
  job.start(1, solver(), {"--throttle=4e6"});
  job.start(2, solver(), {"--throttle=2e7"});
  const Ran ran = job.wait(0).ran;
  EXPECT_EQ(0, ran.code) << ran.err;
  for (const std::size_t rank : {1, 2}) EXPECT_EQ(0, job.wait(rank).ran.code);
  const std::vector<std::size_t> bytes = bytes_after(ran.err, "the servers' links were measured: ");
  ASSERT_EQ(bytes.size(), 2u) << ran.err;
  EXPECT_LT(2 * bytes[0], bytes[1]);
  EXPECT_EQ(ran.err.find("has joined the job"), std::string::npos) << ran.err;
}

// A process that joins gets the measured bandwidths, and the link of a server that joins is
// measured too. A different plan would end the job.
TEST_F(ProcessGroups, WhoJoinsPlacesRowsAsTheOthersDo) {
  for (const std::string scheme : {"bsp", "async"}) {
    SCOPED_TRACE(scheme);
    write_solver("max_iter: 100000000 display: 1 scheme { type: '" + scheme + "' }");
    JobProcesses job(folder_, "bbw");
    job.start(0, solver(), {"--placement=measured", "--emulate_step_ms=4"});
    job.start(1, solver(), {"--throttle=4e6", "--emulate_step_ms=4"});
    job.start(2, solver(), {"--emulate_step_ms=4"});
    ASSERT_TRUE(job.says(0, "the servers' links were measured: "));
    const Running worker = start_program(job.joining(solver(), {"--emulate_step_ms=4"}));
    ASSERT_TRUE(wait_for_text(worker, "has joined the job, as worker 3 of 4"));
    const Running server = start_program(
        job.joining(solver(), {"--emulate_step_ms=4", "--role=both", "--throttle=4e6"}));
    ASSERT_TRUE(wait_for_text(server, "has joined the job, as worker 4 of 5"));
    ASSERT_TRUE(job.says(0, " rows of params on 3 servers, with "));
    job.signal(0, SIGINT);
    for (const Running* one : {&worker, &server}) {
      const Ran ran = wait_for(*one);
      EXPECT_EQ(ran.code, 0) << ran.err;
    }
    for (const std::size_t rank : {0u, 1u, 2u}) {
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 0) << ran.err;
      EXPECT_EQ(ran.err.find("has joined the job, as"), std::string::npos)
          << "who was there from the start has not joined";
      if (rank > 0) continue;
      const std::vector<std::size_t> bytes =
          bytes_after(ran.err, "the servers' links were measured: ");
      ASSERT_EQ(bytes.size(), 2u) << ran.err;
      EXPECT_LT(2 * bytes[1], bytes[0]) << "what a worker sees of the server beside it is no link";
    }
  }
}

TEST_F(ProcessGroups, SayBeforeTheyBeginWhatCannotBe) {
  write_solver("max_iter: 100");
  const auto refused = [&](const std::vector<std::string>& flags) {
    JobProcesses job(folder_, "bb");
    job.start_all(solver(), flags);
    // The first process to fail ends the other, which may know no more than that.
    const Ran ran = job.wait(0).ran, other = job.wait(1).ran;
    EXPECT_TRUE(ran.code == 2 || other.code == 2) << ran.code << other.code;
    return ran.err + other.err;
  };
  EXPECT_HAS(refused({"--group_by=speed", "--groups_out=/no/such/folder/groups"}),
             "/no/such/folder");
  EXPECT_HAS(refused({"--profile_only"}),
             "--profile_only: no scheme of the run has group_by: SPEED");
}

}  // namespace
}  // namespace shoal::test::process_groups_test
