// Tests jobs of real train processes that lose their chief before they train.
#include "jobs/process_losses.h"
#include "support/expect.h"

namespace shoal::test::early_losses_test {
namespace {

// The next worker begins the job, with the snapshot that the first one has found.
TEST_F(ProcessLosses, AChiefIsLostAsTheJobBegins) {
  for (const char* const roles : {"bbb", "sbb", "bww"}) {
    SCOPED_TRACE(roles);
    const std::string path =
        solver(str("early_", roles), str("scheme { type: 'bsp' } copies: 2", kTable));
    const std::size_t chief = roles[0] == 's' ? 1 : 0, next = chief + 1;
    {
      JobProcesses before(job_folder(str("before_", roles)), roles);
      before.flags.push_back("--emulate_step_ms=4");
      before.start_all(path);
      ASSERT_TRUE(before.says(chief, "Iteration 5 (")) << before.wait(chief).ran.err;
      end(before, kNone);
    }
    JobProcesses job(job_folder(str("early_", roles)), roles);
    job.flags.push_back("--emulate_step_ms=4");
    job.start_all(path, {"--snapshot=auto"});
    ASSERT_TRUE(job.says(chief, "Training on the CPU")) << job.wait(chief).ran.err;
    job.signal(chief, SIGKILL);
    EXPECT_EQ(job.wait(chief).ran.code, 128 + SIGKILL);
    ASSERT_TRUE(job.says(next, "(* 1 = ")) << job.wait(next).ran.err;
    job.signal(next, SIGUSR1);
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      if (rank == chief) continue;
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 75) << "rank " << rank << ": " << ran.err;
      if (rank != next) continue;
      EXPECT_HAS(ran.err, "continuing with ");
      EXPECT_EQ(ran.err.find("Iteration 0 ("), std::string::npos) << ran.err;
    }
  }
}

}  // namespace
}  // namespace shoal::test::early_losses_test
