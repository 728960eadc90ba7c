// Tests jobs of real train processes that remove one which was stopped, and which then goes on.
#include "jobs/process_losses.h"
#include "support/expect.h"

namespace shoal::test::stopped_process_test {
namespace {

// Stops a process until the others have removed it.
class StoppedProcesses : public ProcessLosses {
 protected:
  void stop(JobProcesses& job, std::size_t rank, const std::string& path) {
    for (const char* const flag : {"--emulate_step_ms=4", "--lost_after=1"})
      job.flags.push_back(flag);
    job.start_all(path);
    ASSERT_TRUE(job.says(0, "Iteration 5 ("));
    job.signal(rank, SIGSTOP);
  }
};

class StoppedProcess : public StoppedProcesses, public testing::WithParamInterface<std::size_t> {};

// It is told so, and joins the job anew. If it coordinated it may find the others silent first.
TEST_P(StoppedProcess, JoinsAnewWhenItGoesOn) {
  const std::size_t rank = GetParam(), other = rank == 0 ? 1 : 0;
  const std::string name = str("stopped_", rank);
  const std::string path = solver(name, str("scheme { type: 'bsp' } copies: 2", kTable));
  JobProcesses job(job_folder(name), "bbb");
  stop(job, rank, path);
  ASSERT_TRUE(job.says(other, "continuing with 2 workers (was 3)")) << job.wait(other).ran.err;
  job.signal(rank, SIGCONT);
  // It does not say that the others are lost: a launcher would believe that.
  if (job.says(rank, "removed from the job, which goes on without it")) {
    ASSERT_TRUE(job.says(rank, "It joins the job anew.")) << job.wait(rank).ran.err;
    ASSERT_TRUE(job.says(other, "continuing with 3 workers (was 2)")) << job.wait(other).ran.err;
    if (rank != 0) return end(job, kNone);
    // The standby of the new coordinator has not listened to the old one.
    ASSERT_TRUE(job.says(other, kFirstIteration, 2));
    job.signal(other, SIGKILL);
    ASSERT_TRUE(job.says(2, "continuing with 2 workers (was 3)")) << job.wait(2).ran.err;
    job.signal(2, SIGUSR1);
    const Ran ended = job.wait(0).ran;
    EXPECT_EQ(ended.code, 75) << ended.err;
    EXPECT_EQ(ended.err.find("] lost rank "), std::string::npos) << ended.err;
    EXPECT_EQ(job.wait(2).ran.code, 75);
  } else {
    const JobProcesses::Ended ended = job.wait(rank);
    EXPECT_EQ(rank, 0u);
    EXPECT_EQ(ended.ran.code, 75) << ended.ran.err;
    EXPECT_HAS(ended.ran.err, "this side of the network ends");
    end(job, rank);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoppedProcess, testing::Values(0, 2));

// The coordinator is killed meanwhile, and another has taken its place.
TEST_F(StoppedProcesses, AStandbyThatWasStoppedDoesNotTakeOver) {
  const std::string path = solver("asleep", str("scheme { type: 'async' } copies: 2", kTable));
  JobProcesses job(job_folder("asleep"), "bbbb");
  stop(job, 1, path);
  ASSERT_TRUE(job.says(0, "continuing with 3 workers (was 4)")) << job.wait(0).ran.err;
  ASSERT_TRUE(job.says(0, kFirstIteration, 2));
  job.signal(0, SIGKILL);
  ASSERT_TRUE(job.says(2, "continuing with 2 workers (was 3)")) << job.wait(2).ran.err;
  job.signal(1, SIGCONT);
  ASSERT_TRUE(job.says(1, "It joins the job anew.")) << job.wait(1).ran.err;
  ASSERT_TRUE(job.says(2, "continuing with 3 workers (was 2)")) << job.wait(2).ran.err;
  job.signal(2, SIGUSR1);
  for (const std::size_t rank : {1u, 2u, 3u}) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 75) << ran.err;
    EXPECT_EQ(ran.err.find("This process, rank 1, coordinates"), std::string::npos) << ran.err;
  }
}

// Another process is at the address of one that it knew, with a rank that it never gave.
TEST_F(StoppedProcesses, ACoordinatorThatWasStoppedLearnsOfItsSuccessorFromANewProcess) {
  const std::string path = solver("replaced", str("scheme { type: 'async' } copies: 2", kTable));
  JobProcesses job(job_folder("replaced"), "bbb");
  stop(job, 0, path);
  ASSERT_TRUE(job.says(1, "continuing with 2 workers (was 3)")) << job.wait(1).ran.err;
  job.signal(2, SIGKILL);
  ASSERT_TRUE(job.says(1, "continuing with 1 workers (was 2)")) << job.wait(1).ran.err;
  const Running in_its_place = start_program(
      job.joining(path, {str("--join=127.0.0.1:", job.port(1)), "--role=both",
                         str("--port=", job.port(2)), "--emulate_step_ms=4", "--lost_after=1"}));
  ASSERT_TRUE(job.says(1, "continuing with 2 workers (was 1)")) << job.wait(1).ran.err;
  job.signal(0, SIGCONT);
  ASSERT_TRUE(job.says(0, "It joins the job anew.")) << job.wait(0).ran.err;
  ASSERT_TRUE(job.says(1, "continuing with 3 workers (was 2)")) << job.wait(1).ran.err;
  job.signal(1, SIGUSR1);
  const Ran ended = job.wait(0).ran;
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_EQ(ended.err.find("] lost rank "), std::string::npos) << ended.err;
  EXPECT_EQ(job.wait(1).ran.code, 75);
  EXPECT_EQ(wait_for(in_its_place).code, 75);
}

// The other one of two processes may be alive, with the coordinator.
TEST_F(StoppedProcesses, HalfOfTheProcessesDoNotFollowASilentCoordinator) {
  const std::string path = solver("half", str("scheme { type: 'bsp' }", kTable));
  JobProcesses job(job_folder("half"), "bb");
  stop(job, 0, path);
  const Ran ended = job.wait(1).ran;
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_HAS(ended.err, "half or more of the processes have not come here");
  job.signal(0, SIGCONT);
  ASSERT_TRUE(job.says(0, "continuing with 1 workers (was 2)")) << job.wait(0).ran.err;
  job.signal(0, SIGUSR1);
  EXPECT_EQ(job.wait(0).ran.code, 75);
}

}  // namespace
}  // namespace shoal::test::stopped_process_test
