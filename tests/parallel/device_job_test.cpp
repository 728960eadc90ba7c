// Tests of training on a device that is not the host: a run alone and jobs of several workers,
// which end in the bits of the CPU.
#include <gtest/gtest.h>

#include "support/device_training.h"
#include "support/guarded_device.h"
#include "support/job.h"

namespace shoal::test::device_job_test {
namespace {

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().message; }

TEST(DeviceJobs, ARunAloneEndsInTheBitsOfTheCpu) {
  const SolverParameter param = device_solver("device_alone", "max_iter: 12 snapshot: 6");
  expect_ok(train_on(nullptr, param));
  const std::string half = saved(param, 6), whole = saved(param, 12);
  const GuardedDevice device(7, 2);
  expect_ok(train_on(&device, param));
  EXPECT_GT(device.done(), 100) << "ops ran there";
  EXPECT_EQ(saved(param, 6), half);
  EXPECT_EQ(saved(param, 12), whole);
  expect_ok(train_on(&device, param, nullptr, param.snapshot_prefix() + "_iter_6.solverstate"));
  EXPECT_EQ(saved(param, 12), whole) << "the device goes on from a snapshot";
}

class DeviceSchemes : public testing::TestWithParam<const char*> {};

TEST_P(DeviceSchemes, AJobEndsInTheBitsOfTheCpu) {
  const SolverParameter param = device_solver("device_job", GetParam());
  const auto job = [&](const std::vector<const Device*>& devices) {
    const auto life = [&](int worker, table::Table& table) {
      return train_on(devices[static_cast<std::size_t>(worker)], param, &table);
    };
    for (const Status& status : run_workers(2, 2, life)) expect_ok(status);
    return saved(param, 12);
  };
  const std::string on_cpu = job({nullptr, nullptr});
  const GuardedDevice first(7, 2), second(8, 2);
  EXPECT_EQ(job({&first, &second}), on_cpu);
  EXPECT_EQ(job({nullptr, &second}), on_cpu) << "one worker on a device";
}

INSTANTIATE_TEST_SUITE_P(
    All, DeviceSchemes,
    testing::Values("max_iter: 12 scheme { type: 'bsp' }",
                    "scheme { type: 'local_steps' local_steps: 3 } "
                    "max_iter: 12",
                    "max_iter: 12 iter_size: 2 solver_type: ADAM scheme { type: 'bsp' }"));

}  // namespace
}  // namespace shoal::test::device_job_test
