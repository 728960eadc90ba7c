// Tests of sums over the GPUs of a job's processes by NCCL.
#include <gtest/gtest.h>

#include "cuda/devices.h"
#include "cuda/fake_cuda.h"
#include "cuda/fake_libraries.h"
#include "support/device_training.h"
#include "support/job.h"
#include "support/solver_rig.h"

namespace shoal::test::nccl_job_test {
namespace {

// Trains a job in which worker w computes on devices[w]. Returns how each worker ended.
std::vector<Status> train_job(const std::vector<const Device*>& devices,
                              const SolverParameter& param) {
  const int workers = static_cast<int>(devices.size());
  return run_workers(workers, workers, [&](int worker, table::Table& table) -> Status {
    try {
      return train_on(devices[static_cast<std::size_t>(worker)], param, &table);
    } catch (const ConfigError& error) {  // as a process ends with it
      table.abort(error.error());
      return error.error();
    }
  });
}

SolverParameter solver(const std::string& words, bool by_nccl) {
  return device_solver(
      "nccl_job", "max_iter: 12 snapshot: 6 " + words + (by_nccl ? " exchange { way: NCCL }" : ""));
}

TEST(CudaNcclJob, LearnsWhatTheTableLearns) {
  for (const int workers : {2, 3})
    for (const char* words : {"scheme { type: 'bsp' }", "scheme { type: 'local_steps' }"}) {
      SCOPED_TRACE(str(workers, " workers, ", words));
      std::vector<const Device*> devices;
      for (int w = 0; w < workers; ++w) devices.push_back(&fake_gpu(w));
      const SolverParameter table = solver(words, false);
      for (const Status& status : train_job(devices, table)) ASSERT_OK(status);
      const Numbers want = model_of(table, 12);
      const SolverParameter nccl = solver(words, true);
      const LogLines log;
      for (const Status& status : train_job(devices, nccl)) ASSERT_OK(status);
      EXPECT_LE(relative_error(model_of(nccl, 12), want), 1e-4);
      EXPECT_TRUE(log.has(str("NCCL: worker 1 of ", workers, " sums on cuda:1")));
    }
}

TEST(CudaNcclJob, RefusesAWorkerWithoutAGpu) {
  const std::vector<Status> ends = train_job({&fake_gpu(0), nullptr}, solver("", true));
  ASSERT_FALSE(ends[1].ok());
  EXPECT_HAS(ends[1].error().message,
             "exchange NCCL: worker 1 computes on cpu; all workers need a GPU");
  EXPECT_FALSE(ends[0].ok()) << "it does not wait for the other";
}

// Of one worker, at some call of a library while it joins, computes or sums.
TEST(CudaNcclJob, AFailureEndsAllWorkers) {
  const SolverParameter param = solver("", true);
  for (const int call : {1, 2, 3, 20, 41}) {
    SCOPED_TRACE(call);
    fail_library(call);
    for (const Status& status : train_job({&fake_gpu(0), &fake_gpu(1)}, param))
      EXPECT_FALSE(status.ok());
    reset_fakes();
  }
}

}  // namespace
}  // namespace shoal::test::nccl_job_test
