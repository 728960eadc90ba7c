// Tests that jobs of real train processes keep params and histories, whoever is lost and when.
#include "jobs/process_losses.h"
#include "shoal/base/file.h"
#include "shoal/solver/snapshot.h"
#include "support/expect.h"

namespace shoal::test::params_kept_test {
namespace {

// A server that is lost changes no bit of a run by bsp: its rows are on another one, to the bit.
// Nor does a coordinator, whose standby knows all that it said. The net draws no numbers, whose
// streams would begin anew with the next generation.
TEST_F(ProcessLosses, AServersLossChangesNothingUnderBsp) {
  const std::string net = str(
      "net_param { layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { "
      "scale: 0.01 } data_param { source: '",
      folder_,
      "/data' backend: DATUMFILE batch_size: 8 "
      "} } layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
      "num_output: 8 weight_filler { type: 'xavier' } } } layer { name: 'loss' type: "
      "'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } } ");
  std::string whole;
  for (const char* const clip : {"", "clip_gradients: 0.5 iter_size: 3 "}) {
    for (const int victim : {-1, 3, 0}) {
      SCOPED_TRACE(str(victim, clip));
      const bool loses = victim >= 0;
      const std::string name = str("victim", victim, *clip ? "clip" : "");
      const std::string path = put_small_solver(
          folder_, name,
          str(net, clip, "base_lr: 0.01 momentum: 0.9 max_iter: 60 snapshot: 60 display: 1 ",
              "scheme { type: 'bsp' } copies: 2", kTable));
      JobProcesses job(job_folder(name), "swws");
      job.flags.push_back("--emulate_step_ms=4");
      job.start_all(path);
      ASSERT_TRUE(job.says(1, "Iteration 5 (")) << job.wait(1).ran.err;
      if (loses) job.signal(static_cast<std::size_t>(victim), SIGKILL);
      std::string said;
      for (std::size_t rank = 0; rank < job.size(); ++rank) {
        if (static_cast<int>(rank) == victim) continue;
        const Ran ran = job.wait(rank).ran;
        EXPECT_EQ(ran.code, 0) << "rank " << rank << ": " << ran.err;
        said += ran.err;
      }
      if (loses) {
        EXPECT_HAS(said, str("] lost rank ", victim, " (host "));
      }
      const std::string model = get_file(snapshot_stem(folder_ + "/" + name, 60) + ".caffemodel");
      if (!loses) whole = model;
      EXPECT_TRUE(model == whole);
    }
  }
}

// Links are so slow that the chief needs a second to give the servers the params. It is killed
// then, alone or with the next one; both coordinate, too.
TEST_F(ProcessLosses, ChiefsThatAreLostBeforeTheyHaveGivenTheParamsAreFollowed) {
  const std::string net = str(
      "net_param { layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: "
      "'",
      folder_,
      "/data' backend: DATUMFILE batch_size: 8 } } layer { name: 'ip' type: 'InnerProduct' bottom: "
      "'data' top: 'ip' inner_product_param { num_output: 1000 weight_filler { type: 'xavier' } } "
      "} layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } "
      "} ");
  for (const std::size_t chiefs : {1u, 2u}) {
    SCOPED_TRACE(chiefs);
    const std::string name = str("chiefs", chiefs);
    const std::string path = put_small_solver(
        folder_, name,
        str(net,
            "base_lr: 0.001 momentum: 0.9 max_iter: 100000000 display: 1 scheme { type: 'bsp' "
            "} copies: 2",
            kTable));
    JobProcesses job(job_folder(name), "bbbbb");
    job.flags.push_back("--throttle=10000000");
    job.start_all(path);
    ASSERT_TRUE(job.says(0, "Iteration 1 (")) << job.wait(0).ran.err;
    job.signal(4, SIGKILL);
    ASSERT_TRUE(job.says(0, "continuing with 4 workers (was 5)")) << job.wait(0).ran.err;
    for (std::size_t rank = 0; rank < chiefs; ++rank) job.signal(rank, SIGKILL);
    ASSERT_TRUE(job.says(chiefs, "had not yet given the servers the params: the next worker does"))
        << job.wait(chiefs).ran.err;
    ASSERT_TRUE(job.says(chiefs, str("continuing with ", 4 - chiefs, " workers")))
        << job.wait(chiefs).ran.err;
    ASSERT_TRUE(job.says(chiefs, kFirstIteration)) << job.wait(chiefs).ran.err;
    job.signal(chiefs, SIGUSR1);
    for (std::size_t rank = chiefs; rank < 4; ++rank) {
      const Ran ran = job.wait(rank).ran;
      EXPECT_EQ(ran.code, 75) << "rank " << rank << ": " << ran.err;
    }
  }
}

}  // namespace
}  // namespace shoal::test::params_kept_test
