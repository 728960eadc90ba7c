// The CUDA devices on which tests of kernels run.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/fake_cuda.h"
#include "shoal/ops/gpu.h"
#include "shoal/tensor/device.h"

namespace shoal::test {

// The fake one and, if the machine has a GPU, its first.
inline std::vector<const Device*> cuda_devices() {
  std::vector<const Device*> devices{&fake_gpu()};
  if (ops::gpu_count() > 0) devices.push_back(&ops::gpu(0));
  return devices;
}

// The name of a device as a test's parameter.
inline std::string cuda_device_name(const testing::TestParamInfo<const Device*>& device) {
  return device.param == &fake_gpu() ? "fake_gpu" : "gpu";
}

}  // namespace shoal::test
