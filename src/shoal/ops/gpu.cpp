// Finds the GPUs. This file alone asks whether the build has CUDA.
#include "shoal/ops/gpu.h"

#include "shoal/base/error.h"

#if SHOAL_CUDA

#include <deque>

#include "shoal/ops/cuda/impls.h"
#include "shoal/tensor/cuda/device.h"

namespace shoal::ops {
namespace {

// The number of GPUs, and why there are none.
struct Found {
  int count = 0;
  std::string why;
};
const Found& found() {
  static const Found once = [] {
    Found look;
    const cudaError_t result = shoal::cuda::runtime().GetDeviceCount(&look.count);
    // Without a driver CUDA says that its version is insufficient.
    if (result != cudaSuccess)
      look = {0, str("no NVIDIA GPU, or no driver that is new enough, was found (CUDA says: ",
                     cudaGetErrorString(result), ")")};
    return look;
  }();
  return once;
}

// Returns all GPUs of the machine.
const std::deque<shoal::cuda::CudaDevice>& devices() {
  static const std::deque<shoal::cuda::CudaDevice> all = [] {
    std::deque<shoal::cuda::CudaDevice> made;
    for (int ordinal = 0; ordinal < gpu_count(); ++ordinal)
      made.emplace_back(ordinal, cuda::backend());
    return made;
  }();
  return all;
}

}  // namespace

int gpu_count() { return found().count; }

const Device& gpu(int ordinal) {
  if (ordinal < 0 || ordinal >= gpu_count())
    throw DeviceError(str("GPU ", ordinal, " cannot be used: ",
                          gpu_count() == 0
                              ? why_no_gpu()
                              : str("this machine has ", gpu_count(), ", counted from 0")));
  return devices()[static_cast<std::size_t>(ordinal)];
}

std::string describe_gpu(int ordinal) {
  gpu(ordinal);
  return devices()[static_cast<std::size_t>(ordinal)].describe();
}

std::string why_no_gpu() { return gpu_count() > 0 ? "" : found().why; }

}  // namespace shoal::ops

#else

namespace shoal::ops {

int gpu_count() { return 0; }
const Device& gpu(int ordinal) {
  throw DeviceError(str("GPU ", ordinal, " cannot be used: ", why_no_gpu()));
}
std::string describe_gpu(int ordinal) { return gpu(ordinal).name(); }
std::string why_no_gpu() {
  return "this build computes on the CPU alone; make CUDA=1 builds it for GPUs";
}

}  // namespace shoal::ops

#endif
