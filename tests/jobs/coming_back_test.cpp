// Tests jobs of real train processes that lose one which is then started again, by the same
// command.
#include "jobs/process_losses.h"
#include "support/expect.h"

namespace shoal::test::coming_back_test {
namespace {

class ComingBack : public ProcessLosses {
 protected:
  // Waits until the others go on without the process, and starts it by its command.
  static void start_again(JobProcesses& job, std::size_t rank, const std::string& path,
                          std::size_t chief) {
    job.signal(rank, SIGKILL);
    EXPECT_EQ(job.wait(rank).ran.code, 128 + SIGKILL);
    job.start(rank, path);
    ASSERT_TRUE(job.says(rank, str("the job goes on without this process, rank ", rank)))
        << job.wait(rank).ran.err;
    ASSERT_TRUE(job.says(rank, "has joined the job, as worker")) << job.wait(rank).ran.err;
    ASSERT_TRUE(job.says(chief, "continuing with 3 workers (was 2)")) << job.wait(chief).ran.err;
  }
};

class ProcessComingBack : public ComingBack, public testing::WithParamInterface<std::size_t> {};

// It has another rank then, at its old address, and is lost and started a second time.
TEST_P(ProcessComingBack, JoinsTheJobThatGoesOn) {
  const std::size_t rank = GetParam(), chief = rank == 0 ? 1 : 0;
  const std::string name = str("back_", rank);
  const std::string path = solver(name, str("scheme { type: 'bsp' } copies: 2", kTable));
  JobProcesses job(job_folder(name), "bbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
  ASSERT_NO_FATAL_FAILURE(start_again(job, rank, path, chief));
  ASSERT_TRUE(job.says(chief, kFirstIteration, chief == 0 ? 3 : 2)) << job.wait(chief).ran.err;
  job.signal(rank, SIGKILL);
  EXPECT_EQ(job.wait(rank).ran.code, 128 + SIGKILL);
  job.start(rank, path);
  ASSERT_TRUE(job.says(chief, "continuing with 3 workers (was 2)", 2)) << job.wait(chief).ran.err;
  job.signal(chief, SIGUSR1);
  for (std::size_t each = 0; each < 3; ++each) {
    const Ran ran = job.wait(each).ran;
    EXPECT_EQ(ran.code, 75) << "rank " << each << ": " << ran.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessComingBack, testing::Values(0, 2));

// Process 0 is gone for good, and so is where others look for it first.
TEST_F(ComingBack, AnotherProcessFindsTheSuccessorWhereProcess0Was) {
  const std::string path = solver("both", str("scheme { type: 'async' } copies: 2", kTable));
  JobProcesses job(job_folder("both"), "bbbb");
  job.flags.push_back("--emulate_step_ms=4");
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
  job.signal(0, SIGKILL);
  ASSERT_TRUE(job.says(1, "continuing with 3 workers (was 4)")) << job.wait(1).ran.err;
  ASSERT_TRUE(job.says(1, kFirstIteration)) << job.wait(1).ran.err;
  ASSERT_NO_FATAL_FAILURE(start_again(job, 3, path, 1));
  job.signal(1, SIGUSR1);
  for (const std::size_t rank : {1u, 2u, 3u}) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(ran.code, 75) << "rank " << rank << ": " << ran.err;
  }
}

// A second process with a rank is no one that comes back. It does not join beside the first.
TEST_F(ComingBack, AProcessWhoseRankIsTakenDoesNotJoin) {
  const std::string path = solver("taken", str("scheme { type: 'bsp' }", kTable));
  JobProcesses job(job_folder("taken"), "bbb");
  for (const char* const flag : {"--emulate_step_ms=4", "--lost_after=1"})
    job.flags.push_back(flag);
  job.start_all(path);
  ASSERT_TRUE(job.says(0, "Iteration 5 (")) << job.wait(0).ran.err;
  const Ran second = wait_for(start_program(job.command(2, path)));
  EXPECT_EQ(second.code, 6) << second.err;
  EXPECT_HAS(second.err, "rank 2 is another process's, which takes part in the job");
  end(job, kNone);
}

}  // namespace
}  // namespace shoal::test::coming_back_test
