#include "shoal/tensor/cuda/runtime.h"

namespace shoal::cuda {

const Runtime& runtime() {
  static const Runtime table = {
      .GetDeviceCount = &cudaGetDeviceCount,
      .SetDevice = &cudaSetDevice,
      .GetDeviceProperties = &cudaGetDeviceProperties,
      .MemGetInfo = &cudaMemGetInfo,
      .MallocAsync = &cudaMallocAsync,
      .FreeAsync = &cudaFreeAsync,
      .HostAlloc = &cudaHostAlloc,
      .FreeHost = &cudaFreeHost,
      .MemcpyAsync = &cudaMemcpyAsync,
      .MemsetAsync = &cudaMemsetAsync,
      .StreamCreate = &cudaStreamCreate,
      .StreamDestroy = &cudaStreamDestroy,
      .StreamSynchronize = &cudaStreamSynchronize,
      .GetLastError = &cudaGetLastError,
      .run_on_host = nullptr,
      .blas = nullptr,
      .dnn = nullptr,
  };
  return table;
}

void fail(cudaError_t result, const std::string& what) {
  throw DeviceError(
      str(what, ": CUDA says ", cudaGetErrorName(result), ", ", cudaGetErrorString(result)));
}

}  // namespace shoal::cuda
