// Tests of what an iteration takes on a GPU once training is under way.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/fake_cuda.h"
#include "shoal/data/batch_copies.h"
#include "shoal/solver/solver.h"
#include "support/device_training.h"

namespace shoal::test::cuda_steady_test {
namespace {

// A batch with its labels goes to the GPU; the loss and what is known of the gradients come back,
// and each of the two is waited for, since on_nan may forbid the update. Batches that were made in
// the meantime may go ahead.
TEST(CudaSteady, AnIterationAllocatesNothingAndWaitsForTheLossAndTheGradientsAlone) {
  for (const char* precision : {"FLOAT32", "TF32", "FLOAT16"}) {
    SCOPED_TRACE(precision);
    SolverParameter param = device_solver(
        "cuda_steady", std::string("snapshot_after_train: false precision: ") + precision);
    param.set_display(0);
    param.set_test_interval(1000);
    param.set_test_initialization(false);
    Solver solver(param, {.device = &fake_gpu()});
    or_throw(solver.step(2));
    const FakeCalls first = fake_calls();
    constexpr int kIterations = 5;
    for (int i = 0; i < kIterations; ++i) {
      const FakeCalls before = fake_calls();
      or_throw(solver.step(1));
      const FakeCalls calls = fake_calls() - before;
      EXPECT_EQ(calls.allocations, 0);
      EXPECT_EQ(calls.frees, 0);
      EXPECT_EQ(calls.waits, 2);
      EXPECT_GE(calls.copies, 2) << "the loss and the gradients";
    }
    const std::int64_t batches = (fake_calls() - first).copies - 2 * kIterations;
    EXPECT_LE(std::abs(batches - kIterations), BatchCopies::kAhead) << "one copy a batch";
  }
}

}  // namespace
}  // namespace shoal::test::cuda_steady_test
