// Tests of a CUDA device's memory, and of training on it: alone, with a CPU beside it, from one's
// snapshot to the other, and when the GPU fails.
#include <gtest/gtest.h>

#include "cuda/devices.h"
#include "cuda/fake_cuda.h"
#include "shoal/tensor/cuda/device.h"
#include "support/device_training.h"
#include "support/job.h"
#include "support/layer_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::cuda_train_test {
namespace {

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().message; }

class CudaMemoryInUse : public testing::TestWithParam<const Device*> {};

TEST_P(CudaMemoryInUse, HasAPeak) {
  constexpr std::size_t kUnit = std::size_t{2} << 20;  // in which a GPU's pages come
  const Device& device = *GetParam();
  const std::shared_ptr<Stream> stream = device.make_stream();
  const std::shared_ptr<Memory> kept = device.allocate(kUnit);
  const auto peak = [&] {  // when what was freed is free
    const std::byte one{1};
    stream->upload(kept->data(), &one, 1);
    stream->synchronize();
    return device.peak_bytes();
  };
  const auto use = [&](std::initializer_list<std::size_t> units) {
    std::vector<std::shared_ptr<Memory>> all;
    for (const std::size_t n : units) all.push_back(device.allocate(n * kUnit));
  };
  peak();
  device.reset_peak_bytes();
  const std::optional<std::size_t> before = peak();
  ASSERT_TRUE(before);
  EXPECT_GE(*before, kUnit) << "what stays in use counts from the start";
  use({5, 1, 2});
  EXPECT_EQ(peak(), *before + 8 * kUnit);
  use({7});
  EXPECT_EQ(peak(), *before + 8 * kUnit) << "it was in use before the last";
  use({6, 3});
  EXPECT_EQ(peak(), *before + 9 * kUnit);
  device.reset_peak_bytes();
  EXPECT_EQ(peak(), before);
  use({4});
  EXPECT_EQ(peak(), *before + 4 * kUnit) << "no more than was in use since the reset";
}

TEST(CudaDevices, HavePeaksOfTheirOwn) {
  fake_gpu(2).reset_peak_bytes();
  const std::optional<std::size_t> other = fake_gpu(2).peak_bytes();
  fake_gpu(1).reset_peak_bytes();
  const std::optional<std::size_t> before = fake_gpu(1).peak_bytes();
  (void)fake_gpu(1).allocate(1000);
  EXPECT_EQ(fake_gpu(1).peak_bytes(), before.value() + 1000);
  EXPECT_EQ(fake_gpu(2).peak_bytes(), other);
  EXPECT_EQ(cpu_device().peak_bytes(), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(On, CudaMemoryInUse, testing::ValuesIn(cuda_devices()), cuda_device_name);

class CudaTraining : public testing::TestWithParam<const Device*> {
 protected:
  const Device* device() const { return GetParam(); }
};

TEST(CudaDevices, SayWhatTheyAre) {
  EXPECT_EQ(static_cast<const cuda::CudaDevice&>(fake_gpu(0)).describe(),
            "fake, compute capability 9.0, 0 multiprocessors, 16384 MiB of memory, 16384 MiB free");
}

TEST_P(CudaTraining, EndsWhereTheCpuDoes) {
  const SolverParameter param = device_solver("cuda_alone", "max_iter: 12 snapshot: 6");
  expect_ok(train_on(nullptr, param));
  const Numbers half = model_of(param, 6), whole = model_of(param, 12);
  expect_ok(train_on(device(), param));
  EXPECT_LE(relative_error(model_of(param, 6), half), 1e-4);
  EXPECT_LE(relative_error(model_of(param, 12), whole), 1e-3);
}

TEST_P(CudaTraining, HasTheSameBitsInEveryRunAndAfterARestore) {
  const SolverParameter param = device_solver("cuda_twice", "max_iter: 12 snapshot: 6");
  expect_ok(train_on(device(), param));
  const std::string half = saved(param, 6), whole = saved(param, 12);
  expect_ok(train_on(device(), param));
  EXPECT_EQ(saved(param, 6), half);
  EXPECT_EQ(saved(param, 12), whole);
  expect_ok(train_on(device(), param, nullptr, param.snapshot_prefix() + "_iter_6.solverstate"));
  EXPECT_EQ(saved(param, 12), whole);
}

TEST_P(CudaTraining, GoesOnFromTheCpuAndBack) {
  const SolverParameter param = device_solver("cuda_turns", "max_iter: 18 snapshot: 6");
  expect_ok(train_on(nullptr, param));
  const Numbers want = model_of(param, 18);
  SolverParameter first = param, second = param;
  first.set_max_iter(6);
  second.set_max_iter(12);
  const std::string state = param.snapshot_prefix() + "_iter_";
  expect_ok(train_on(nullptr, first));
  expect_ok(train_on(device(), second, nullptr, state + "6.solverstate"));
  expect_ok(train_on(nullptr, param, nullptr, state + "12.solverstate"));
  EXPECT_LE(relative_error(model_of(param, 18), want), 1e-3);
}

TEST_P(CudaTraining, WorksInAJobBesideACpu) {
  for (const char* scheme : {"bsp", "local_steps"}) {
    SCOPED_TRACE(scheme);
    const SolverParameter param =
        device_solver("cuda_job", std::string("max_iter: 12 scheme { type: '") + scheme + "' }");
    const auto job = [&](const Device* second) {
      const auto life = [&](int worker, table::Table& table) {
        return train_on(worker == 1 ? second : nullptr, param, &table);
      };
      for (const Status& status : run_workers(2, 2, life)) expect_ok(status);
      return model_of(param, 12);
    };
    const Numbers want = job(nullptr);
    EXPECT_LE(relative_error(job(device()), want), 1e-3);
  }
}

TEST_P(CudaTraining, OfChannelsLastEndsNearTheCpu) {
  SolverParameter param = device_solver("cuda_tf32", "max_iter: 6 snapshot: 6");
  expect_ok(train_on(nullptr, param));
  const Numbers want = model_of(param, 6);
  param.set_precision(SolverParameter::TF32);
  expect_ok(train_on(device(), param));
  EXPECT_LE(relative_error(model_of(param, 6), want), 2e-2);
}

TEST_P(CudaTraining, OfShortFloatsEndsNearTheCpu) {
  SolverParameter param = device_solver("cuda_short", "max_iter: 6 snapshot: 6");
  expect_ok(train_on(nullptr, param));
  const Numbers want = model_of(param, 6);
  for (const auto precision : {SolverParameter::BFLOAT16, SolverParameter::FLOAT16}) {
    param.set_precision(precision);
    expect_ok(train_on(device(), param));
    const double error = relative_error(model_of(param, 6), want);
    EXPECT_LE(error, precision == SolverParameter::BFLOAT16 ? 0.2 : 2e-2);
    EXPECT_GT(error, 1e-5);
  }
}

// Gradients that a scale makes infinite are forgotten, the scale falls until they are not, and a
// restored run goes on with it.
TEST_P(CudaTraining, AScaleThatIsTooLargeFalls) {
  const SolverParameter param = device_solver(
      "cuda_scale", "max_iter: 24 snapshot: 12 precision: FLOAT16 global_grad_scale: 16777216");
  const LogLines log;
  expect_ok(train_on(device(), param));
  EXPECT_TRUE(
      log.has("A gradient is not finite: this step is skipped, and gradients are scaled by "
              "8.*"));
  const std::string whole = saved(param, 24);
  const std::string state = param.snapshot_prefix() + "_iter_12.solverstate";
  expect_ok(train_on(device(), param, nullptr, state));
  EXPECT_EQ(saved(param, 24), whole);
  SolverParameter fixed = param;
  fixed.set_global_grad_scale_adaptive(false);
  EXPECT_EQ(Code::kNonFinite, train_on(device(), fixed).error().code);
}

// Though the backward pass has been queued by the time that the loss is looked at.
TEST_P(CudaTraining, ALossThatIsNotFiniteIsToldAsOnTheCpu) {
  SolverParameter param = device_solver("cuda_nan", "max_iter: 6");
  param.set_base_lr(1e30f);
  param.set_clip_gradients(-1);
  for (const auto on_nan : {SolverParameter::STOP, SolverParameter::SKIP}) {
    param.set_on_nan(on_nan);
    const Status cpu = train_on(nullptr, param), gpu = train_on(device(), param);
    EXPECT_EQ(cpu.error().code, Code::kNonFinite);
    EXPECT_HAS(cpu.error().message, "Iteration 2, lr = 1e+30: the loss, nan, ");
    EXPECT_EQ(gpu.error().message, cpu.error().message);
  }
}

// As a gradient is divided by what it was multiplied with, a power of two changes no bit.
TEST_P(CudaTraining, AScaleChangesNothingElse) {
  SolverParameter param =
      device_solver("cuda_scales", "max_iter: 6 snapshot: 6 precision: FLOAT16");
  const auto learned = [&](float scale) {
    param.set_global_grad_scale(scale);
    expect_ok(train_on(device(), param));
    return model_of(param, 6);
  };
  const Numbers want = learned(1024);
  EXPECT_LE(relative_error(learned(256), want), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(On, CudaTraining, testing::ValuesIn(cuda_devices()), cuda_device_name);

// The first failure that `fail` brings about, from the first call on, in a run that goes on from a
// snapshot, until a run is not hurt any more.
void expect_named_failures(const std::string& folder, void (*fail)(int), int step,
                           const std::string& words) {
  const SolverParameter param = device_solver(folder, "max_iter: 6 snapshot: 3");
  expect_ok(train_on(&fake_gpu(), param));
  const std::string good = saved(param, 3);
  const std::string state = param.snapshot_prefix() + "_iter_3.solverstate";
  int failures = 0;
  for (int n = 1; n < 10000; n += step) {
    fail(n);
    Status ended;
    try {
      ended = train_on(&fake_gpu(), param, nullptr, state);
    } catch (const ConfigError& error) {
      ended = error.error();
    }
    reset_fakes();
    if (ended.ok()) break;
    ++failures;
    EXPECT_EQ(ended.error().code, Code::kDevice);
    EXPECT_NE(ended.error().message.find(words), std::string::npos) << ended.error().message;
    ASSERT_EQ(saved(param, 3), good) << "the snapshot before stays whole";
  }
  EXPECT_GT(failures, 3);
}

TEST(CudaFailures, NoMemoryIsADeviceErrorThatSaysHowMuchIsFree) {
  expect_named_failures("cuda_memory", fail_allocation, 5, "bytes are free");
}

TEST(CudaFailures, ACopyThatFailsEndsTheRunWithTheNameOfTheError) {
  expect_named_failures("cuda_copy", fail_copy, 7, "cudaErrorIllegalAddress");
}

}  // namespace
}  // namespace shoal::test::cuda_train_test
