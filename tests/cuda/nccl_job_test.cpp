// Tests of sums over the GPUs of a job's processes by NCCL.
#include <gtest/gtest.h>

#include "cuda/devices.h"
#include "cuda/fake_cuda.h"
#include "cuda/fake_libraries.h"
#include "shoal/base/error.h"
#include "shoal/ops/job_sums.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "support/device_training.h"
#include "support/job.h"
#include "support/solver_rig.h"

namespace shoal::test::nccl_job_test {
namespace {

// Trains a job in which worker w computes on devices[w]. weights: as RunOptions has them. Returns
// how each worker ended.
std::vector<Status> train_job(const std::vector<const Device*>& devices,
                              const SolverParameter& param,
                              const std::vector<double>& weights = {}) {
  const int workers = static_cast<int>(devices.size());
  return run_workers(workers, workers, [&](int worker, table::Table& table) -> Status {
    try {
      return train_on(devices[static_cast<std::size_t>(worker)], param, &table, "", weights);
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

// The workers' batches are not equally large and, at first, have gradients that overflow.
TEST(CudaNcclJob, WeighsAndLeavesOut) {
  for (const char* words : {"", "precision: FLOAT16 global_grad_scale: 16777216"}) {
    SCOPED_TRACE(words);
    Numbers ends[2];
    for (const bool by_nccl : {false, true}) {
      SolverParameter param = solver(words, by_nccl);
      param.mutable_net_param()->mutable_layer(0)->mutable_data_param()->set_batch_size(8);
      const LogLines log;
      for (const Status& status : train_job({&fake_gpu(0), &fake_gpu(1)}, param, {3, 1}))
        ASSERT_OK(status);
      EXPECT_EQ(log.has("A gradient is not finite: this step is skipped.*"), *words != 0);
      ends[by_nccl] = model_of(param, 12);
    }
    EXPECT_LE(relative_error(ends[1], ends[0]), 1e-4);
  }
}

// The table brings the params to the GPU in each iteration.
TEST(CudaNcclJob, GradientsStayOnTheGpus) {
  double params = 0;  // bytes of one worker's
  const auto uploaded_in = [&](bool by_nccl, int iterations) {
    SolverParameter param = solver("", by_nccl);
    param.set_max_iter(iterations);
    param.set_snapshot(iterations);
    param.set_test_interval(iterations);
    const FakeCalls before = fake_calls();
    for (const Status& status : train_job({&fake_gpu(0), &fake_gpu(1)}, param)) or_throw(status);
    params = static_cast<double>(sizeof(float) * model_of(param, iterations).size());
    return static_cast<double>((fake_calls() - before).uploaded);
  };
  const auto in_an_iteration = [&](bool by_nccl) {
    return (uploaded_in(by_nccl, 20) - uploaded_in(by_nccl, 4)) / 16;
  };
  EXPECT_LT(in_an_iteration(true), in_an_iteration(false) - 1.9 * params);
}

// A worker waits for its GPU for the loss, for a look at its gradients, which leave together, for
// the counts of all sums, of which each layer has one, and for a look at them.
TEST(CudaNcclJob, WaitsForAllSumsTogether) {
  constexpr int kSums = 3;
  std::string layers, bottom = "data";
  for (int i = 0; i < kSums; ++i) {
    const std::string top = str("ip", i);
    layers +=
        str("layer { name: '", top, "' type: 'InnerProduct' bottom: '", bottom, "' top: '", top,
            "' inner_product_param { num_output: 520 weight_filler { type: 'xavier' } } }\n");
    bottom = top;
  }
  layers += str("layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: '", bottom,
                "' bottom: 'label' top: 'loss' }");
  const auto waits_of = [&](const char* words, int iterations) {
    SolverParameter param = solver(words, true);
    param.set_max_iter(iterations);
    param.set_display(0);
    param.set_snapshot(iterations);
    param.set_test_interval(iterations);
    param.clear_clip_gradients();
    NetParameter& net = *param.mutable_net_param();
    net.mutable_layer()->DeleteSubrange(1, net.layer_size() - 1);  // but for the data
    net.MergeFrom(parse_net(layers, "large"));
    const FakeCalls before = fake_calls();
    for (const Status& status : train_job({&fake_gpu(0), &fake_gpu(1)}, param)) or_throw(status);
    return static_cast<double>((fake_calls() - before).waits);
  };
  // The waits for batches and other workers at the start differ by a few.
  for (const char* words : {"", "precision: TF32"})
    EXPECT_LT((waits_of(words, 14) - waits_of(words, 4)) / (10 * 2), 5) << words;
}

// A group that lost a member makes no more sums, whatever else is asked.
TEST(CudaNcclJob, ALostMemberEndsItsGroup) {
  std::vector<std::unique_ptr<Context>> contexts;
  for (int gpu = 0; gpu < 3; ++gpu)
    contexts.push_back(std::make_unique<Context>(Context::Options{.device = &fake_gpu(gpu)}));
  const ops::JobSumsImpl& nccl = *ops::job_sums_of(*contexts[0]);
  const std::string name = nccl.name_group(*contexts[0]);
  std::vector<std::unique_ptr<ops::JobSums>> members;
  for (int rank = 0; rank < 3; ++rank)
    members.push_back(nccl.join(*contexts[static_cast<std::size_t>(rank)], name, rank, 3, 2));
  Tensor x(Shape{4});
  Tensor* const all[] = {&x};
  ASSERT_TRUE(members[0]->is_joined());
  members[0]->start(0, all);
  EXPECT_FALSE(members[0]->is_done(0));
  members[1].reset();
  for (int asked = 0; asked < 3; ++asked) EXPECT_THROW(members[0]->is_done(0), DeviceError);
  EXPECT_THROW(members[0]->start(1, all), DeviceError);
  // Nor does one whose own call failed, though NCCL says nothing more of that.
  const std::string other = nccl.name_group(*contexts[0]);
  for (int rank = 0; rank < 3; ++rank)
    members[static_cast<std::size_t>(rank)] =
        nccl.join(*contexts[static_cast<std::size_t>(rank)], other, rank, 3, 2);
  ASSERT_TRUE(members[0]->is_joined());
  fail_library(1);
  EXPECT_THROW(members[0]->start(0, all), DeviceError);
  reset_fakes();
  EXPECT_THROW(members[0]->is_done(0), DeviceError);
}

TEST(CudaNcclJob, RefusesAWorkerWithoutAGpu) {
  const std::vector<Status> ends = train_job({&fake_gpu(0), nullptr}, solver("", true));
  ASSERT_FALSE(ends[1].ok());
  EXPECT_HAS(ends[1].error().message,
             "exchange NCCL: worker 1 computes on cpu; all workers need a GPU");
  EXPECT_FALSE(ends[0].ok()) << "it does not wait for the other";
}

// One worker fails at some call of a library while it joins, computes or sums.
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
