// Tests of several GPUs in one process: a replica on each, whose gradients NCCL or the host sums.
#include <gtest/gtest.h>

#include "cuda/devices.h"
#include "cuda/fake_cuda.h"
#include "cuda/fake_libraries.h"
#include "shoal/ops/device_sums.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/replicas/replicas.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/blob.pb.h"
#include "support/data_files.h"
#include "support/device_training.h"
#include "support/expect.h"
#include "support/job.h"
#include "support/layer_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::cuda_replicas_test {
namespace {

using Devices = std::vector<const Device*>;

Devices fake_gpus(int count) {
  Devices gpus;
  for (int gpu = 0; gpu < count; ++gpu) gpus.push_back(&fake_gpu(gpu));
  return gpus;
}
// NCCL refuses them, so that sums go through the host.
Devices same_gpu(int count) { return Devices(static_cast<std::size_t>(count), &fake_gpu()); }

// Sums of three GPUs, and a context on each.
struct OneEach {
  explicit OneEach(int slots) {
    for (const Device* gpu : fake_gpus(3)) {
      made.push_back(std::make_unique<Context>(Context::Options{.device = gpu}));
      contexts.push_back(made.back().get());
    }
    ops::Why why;
    sums = ops::make_device_sums(contexts, slots, why);
    EXPECT_EQ(why, "");
  }
  std::vector<std::unique_ptr<Context>> made;
  std::vector<Context*> contexts;
  std::unique_ptr<ops::DeviceSums> sums;
};

// The thread that asks GPUs how they are ends all sums, so that no other GPU waits for a failed
// one.
TEST(DeviceSums, AFailedGpuEndsThem) {
  const OneEach gpus(1);
  const auto& [made, contexts, sums] = gpus;
  ASSERT_TRUE(sums);
  sums->throw_if_failed();
  Tensor x(Shape{4});
  x.host_out()[0] = 1;
  fail_copy(1);  // and all that follows, as after a fault
  EXPECT_THROW((void)x.read(*contexts[1]), DeviceError);
  std::string said;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (said.empty() && std::chrono::steady_clock::now() < deadline) {
    try {
      sums->throw_if_failed();
    } catch (const DeviceError& error) {
      said = error.what();
    }
  }
  reset_fakes();
  EXPECT_HAS(said, "the sums of all GPUs of this process were ended: ");
  EXPECT_HAS(said, "cudaErrorIllegalAddress");
  EXPECT_THROW(sums->start(0), DeviceError);
  EXPECT_THROW(sums->take(0, 0), DeviceError);
}

TEST(DeviceSums, SumIntoTheFirstAndCopyFromIt) {
  const OneEach gpus(2);
  const auto& [made, contexts, sums] = gpus;
  ASSERT_TRUE(sums);
  std::vector<Tensor> x;
  for (float value : {1.f, 10.f, 100.f}) {
    Tensor& own = x.emplace_back(Shape{4});
    own.host_out()[3] = value;
    // Is queued late: a sum that does not wait for it would see what was there before.
    ops::axpy(*contexts[x.size() - 1], 1, own, own);
  }
  for (int r = 0; r < 3; ++r) {
    Tensor* const own[] = {&x[static_cast<std::size_t>(r)]};
    sums->offer(r, 0, ops::DeviceSums::Use::kSum, own);
  }
  sums->start(0);
  sums->take(0, 0);
  EXPECT_EQ(222, x[0].host()[3]);
  EXPECT_TRUE(sums->done(0));
  for (int r = 0; r < 3; ++r) {
    Tensor* const own[] = {&x[static_cast<std::size_t>(r)]};
    sums->offer(r, 1, ops::DeviceSums::Use::kCopy, own);
  }
  sums->start(1);
  for (int r = 0; r < 3; ++r) {
    sums->take(r, 1);
    EXPECT_EQ(222, x[static_cast<std::size_t>(r)].host()[3]) << r;
  }
}

// NCCL may have begun on some GPUs, which would wait for the others.
TEST(DeviceSums, OneThatCannotBeStartedEndsThem) {
  const OneEach gpus(1);
  const auto& [made, contexts, sums] = gpus;
  std::vector<Tensor> x;
  for (int r = 0; r < 3; ++r) x.emplace_back(Shape{4});
  for (int r = 0; r < 3; ++r) {
    Tensor* const own[] = {&x[static_cast<std::size_t>(r)]};
    sums->offer(r, 0, ops::DeviceSums::Use::kSum, own);
  }
  fail_library(1);
  EXPECT_THROW(sums->start(0), DeviceError);
  fail_library(0);
  EXPECT_THROW(sums->throw_if_failed(), DeviceError);
  EXPECT_THROW(sums->take(1, 0), DeviceError);
}

TEST(DeviceSums, SayWhyTheyCannotBeMade) {
  Context one({.device = &fake_gpu()}), same({.device = &fake_gpu()}), cpu({});
  const auto why = [](std::vector<Context*> contexts) {
    ops::Why words;
    EXPECT_FALSE(ops::make_device_sums(contexts, 1, words));
    return words;
  };
  EXPECT_EQ("cuda:0 is given twice", why({&one, &same}));
  EXPECT_EQ("cpu is no GPU", why({&one, &cpu}));
  EXPECT_EQ("cpu has no way of its own to sum with other devices", why({&cpu, &one}));
  EXPECT_HAS(ops::cuda::load_nccl({"no_such_library.so"}).why, "NCCL cannot be loaded: no_such");
}

// All functions in nccl.def are in it.
TEST(DeviceSums, KnowTheInstalledNccl) {
  const ops::cuda::NcclLibrary library = ops::cuda::load_nccl();
  if (library.why.find("cannot open") != std::string::npos) GTEST_SKIP() << library.why;
  EXPECT_EQ("", library.why);
}

Status train_on_all(const Devices& devices, const SolverParameter& param,
                    table::Table* table = nullptr, const std::string& snapshot = "") {
  parallel::RunOptions options;
  options.device = devices[0];
  options.others.assign(devices.begin() + 1, devices.end());
  options.share.replicas = static_cast<int>(devices.size());
  options.snapshot = snapshot;
  const Result<Ending> ending =
      parallel::run(parallel::read_job_spec(param, "device"), options, table);
  return ending.ok() ? Status() : Status(ending.error());
}

// Leaves out batch normalization, whose means are of one replica's batch.
SolverParameter plain_solver(const std::string& folder, int batch) {
  SolverParameter param = device_solver(folder, "max_iter: 6 snapshot: 6");
  for (LayerParameter& layer : *param.mutable_net_param()->mutable_layer()) {
    if (layer.type() == "BatchNorm") layer.set_type("Power");
    if (layer.type() == "Data") layer.mutable_data_param()->set_batch_size(batch);
  }
  return param;
}

TEST(CudaReplicas, LearnWhatOneDeviceLearnsFromTheWholeBatch) {
  for (const Device* one : {static_cast<const Device*>(nullptr), &fake_gpu()}) {
    const SolverParameter whole = plain_solver("cuda_whole", 12);
    ASSERT_OK(train_on(one, whole));
    const Numbers want = model_of(whole, 6);
    for (const Devices& devices : {fake_gpus(2), fake_gpus(3), same_gpu(2), same_gpu(3)}) {
      const SolverParameter part =
          plain_solver("cuda_parts", 12 / static_cast<int>(devices.size()));
      ASSERT_OK(train_on_all(devices, part));
      EXPECT_LE(relative_error(model_of(part, 6), want), 1e-5);
    }
  }
}

TEST(CudaReplicas, HaveTheSameBitsInEveryRunAndAfterARestore) {
  for (const Devices& devices : {fake_gpus(3), same_gpu(2)}) {
    const SolverParameter param = device_solver("cuda_replicas", "max_iter: 12 snapshot: 6");
    ASSERT_OK(train_on_all(devices, param));
    const std::string half = saved(param, 6), whole = saved(param, 12);
    ASSERT_OK(train_on_all(devices, param));
    EXPECT_EQ(saved(param, 6), half);
    EXPECT_EQ(saved(param, 12), whole);
    ASSERT_OK(
        train_on_all(devices, param, nullptr, param.snapshot_prefix() + "_iter_6.solverstate"));
    EXPECT_EQ(saved(param, 12), whole);
  }
}

// Each replica's net has recordings of its own.
TEST(CudaReplicas, RecordingsChangeNoBit) {
  for (const Devices& devices : {fake_gpus(3), same_gpu(2)}) {
    const auto train = [&](bool recordings) {
      SolverParameter param = device_solver("cuda_replicas_recorded", "max_iter: 12 snapshot: 12");
      param.set_cuda_graphs(recordings);
      const FakeCalls before = fake_calls();
      EXPECT_TRUE(train_on_all(devices, param).ok());
      const std::int64_t graphs = (fake_calls() - before).graph_launches;
      EXPECT_EQ(graphs > 10 * static_cast<std::int64_t>(devices.size()), recordings) << graphs;
      return saved(param, 12);
    };
    EXPECT_EQ(train(true), train(false));
  }
}

// Running means and what is learned, as replicas on the CPU have them.
TEST(CudaReplicas, EndWhereThoseOnTheCpuDo) {
  const SolverParameter param =
      device_solver("cuda_replicas_cpu", "max_iter: 6 snapshot: 6 iter_size: 2");
  ASSERT_OK(train_on_all({&cpu_device(), &cpu_device()}, param));
  const Numbers want = model_of(param, 6);
  for (const Devices& devices : {fake_gpus(2), same_gpu(2)}) {
    ASSERT_OK(train_on_all(devices, param));
    EXPECT_LE(relative_error(model_of(param, 6), want), 1e-4);
  }
}

// A record of NaN comes to the first GPU in the first pass of the second iteration, or to the
// second in its last.
TEST(CudaReplicas, SkipWhatThoseOnTheCpuSkip) {
  for (const int bad : {16, 25}) {
    SCOPED_TRACE(bad);
    SolverParameter param =
        device_solver("cuda_replicas_skip", "max_iter: 4 snapshot: 4 iter_size: 2 on_nan: SKIP");
    param.clear_clip_gradients();
    param.clear_test_iter();
    param.clear_test_interval();
    const std::string path = param.snapshot_prefix() + "_nan";
    Records records;
    for (int i = 0; i < 80; ++i) {
      Datum datum;
      datum.set_channels(1), datum.set_height(4), datum.set_width(4);
      for (int p = 0; p < 16; ++p)
        datum.add_float_data(i == bad ? std::numeric_limits<float>::quiet_NaN()
                                      : static_cast<float>((i * 7 + p * 3) % 11));
      datum.set_label(i % 10);
      records.emplace_back("r" + std::to_string(100 + i), datum.SerializeAsString());
    }
    ASSERT_OK(write_records("datumfile", path, records));
    for (LayerParameter& layer : *param.mutable_net_param()->mutable_layer())
      if (layer.type() == "Data") layer.mutable_data_param()->set_source(path);
    const auto train = [&](const Devices& devices) {
      const LogLines log;
      EXPECT_TRUE(train_on_all(devices, param).ok());
      EXPECT_TRUE(log.has("Iteration 1, .*this update is left out \\(1 so far\\).*"));
      return model_of(param, 4);
    };
    const Numbers want = train({&cpu_device(), &cpu_device()});
    for (const Devices& devices : {fake_gpus(2), same_gpu(2)})
      EXPECT_LE(relative_error(train(devices), want), 1e-4);
  }
}

// A step on two GPUs, beside one on a single GPU.
TEST(CudaReplicas, AStepWaitsOnceOnEachOfSeveralGpusAndTurnsNoNumbersForSums) {
  const SolverParameter param = device_solver("cuda_replicas_steady", "precision: TF32");
  const auto step_on = [&](int gpus) {
    const Devices devices = fake_gpus(gpus);
    SolverOptions options;
    options.device = devices[0];
    options.share.replicas = gpus;
    std::vector<Net*> nets;
    options.make_updater = [&](Net& net) {
      nets = {&net};
      if (gpus == 1) return make_local_updater(param, "test", net);
      auto made = parallel::make_replicas(param, "test", net, {devices.begin() + 1, devices.end()},
                                          make_local_updater(param, "test", net));
      for (Net* replica : made->replicas()) nets.push_back(replica);
      return made;
    };
    Solver solver(param, options);
    EXPECT_TRUE(solver.step(8).ok());
    const auto reorders = [&] {
      std::int64_t all = 0;
      for (Net* net : nets) all += net->context().stream()->conversions.reorders;
      return all;
    };
    const FakeCalls before = fake_calls();
    const std::int64_t turned = reorders();
    EXPECT_TRUE(solver.step(1).ok());
    EXPECT_EQ((fake_calls() - before).waits, gpus > 1 ? gpus : 0);
    return static_cast<double>(reorders() - turned) / gpus;
  };
  EXPECT_EQ(step_on(2), step_on(1));
}

TEST(CudaReplicas, WorkInAJob) {
  for (const char* scheme : {"bsp", "local_steps"}) {
    SCOPED_TRACE(scheme);
    const SolverParameter param =
        device_solver("cuda_replicas_job",
                      std::string("max_iter: 6 snapshot: 6 scheme { type: '") + scheme + "' }");
    const auto job = [&](const Devices& devices) {
      const auto life = [&](int, table::Table& table) {
        return train_on_all(devices, param, &table);
      };
      for (const Status& status : run_workers(2, 2, life)) EXPECT_TRUE(status.ok());
      return model_of(param, 6);
    };
    const Numbers want = job({&cpu_device(), &cpu_device()});
    EXPECT_LE(relative_error(job(fake_gpus(2)), want), 1e-3);
  }
}

TEST(CudaReplicas, HaveTheFirstsParamsToTheBit) {
  const SolverParameter param = device_solver("cuda_replicas_equal", "max_iter: 6");
  for (const Devices& devices : {fake_gpus(3), same_gpu(3)}) {
    SolverOptions options;
    options.device = devices[0];
    options.share.replicas = 3;
    Updater* updater = nullptr;
    options.make_updater = [&](Net& net) {
      auto made = parallel::make_replicas(param, "test", net, {devices.begin() + 1, devices.end()},
                                          make_local_updater(param, "test", net));
      updater = made.get();
      return made;
    };
    Solver solver(param, options);
    ASSERT_TRUE(solver.step(2).ok());
    const auto before = all_params(solver.net());
    ASSERT_TRUE(solver.step(1).ok());
    ASSERT_OK(updater->settle(Settle::kOwn));
    ASSERT_EQ(2u, updater->replicas().size());
    // The running sums have moved on; what a rule updates has not.
    for (Net* replica : updater->replicas()) {
      std::size_t at = 0;
      for (const NetParam& one : replica->params()) {
        for (const float x : one.blob->data.host()) {
          if (one.lr_mult != 0) {
            ASSERT_EQ(before[at], x) << at;
          }
          ++at;
        }
      }
    }
  }
}

// A library's failure, or the GPU's, ends the run with its words: no replica waits for ever, nor
// does the end of the run.
TEST(CudaReplicas, FailuresEndTheRun) {
  const SolverParameter param = device_solver("cuda_replicas_failure", "max_iter: 3");
  const auto failures = [&](void (*fail)(int), int step) {
    int count = 0;
    for (int n = 1; n < 200; n += step) {
      fail(n);
      Status ended;
      try {
        ended = train_on_all(fake_gpus(2), param);
      } catch (const ConfigError& error) {
        ended = error.error();
      }
      fail(0);
      reset_fakes();
      if (ended.ok()) break;
      ++count;
      EXPECT_EQ(ended.error().code, Code::kDevice) << ended.error().message;
    }
    return count;
  };
  EXPECT_GT(failures(fail_library, 23), 2);
  EXPECT_GT(failures(fail_copy, 3), 2);
}

}  // namespace
}  // namespace shoal::test::cuda_replicas_test
