// The functions of the CUDA runtime that Shoal calls, as a table, so that tests without a GPU can
// put their own in it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>

#include "shoal/base/error.h"

namespace shoal::ops::cuda {
struct Blas;
struct Dnn;
struct Nccl;
}  // namespace shoal::ops::cuda

namespace shoal::cuda {

// Each has the contract of the function of its name in the CUDA runtime (cudaGetDeviceCount ...).
struct Runtime {
  cudaError_t (*GetDeviceCount)(int* count);
  cudaError_t (*SetDevice)(int device);
  cudaError_t (*GetDeviceProperties)(cudaDeviceProp* properties, int device);
  cudaError_t (*MemGetInfo)(std::size_t* available, std::size_t* total);
  cudaError_t (*DeviceGetDefaultMemPool)(cudaMemPool_t* pool, int device);
  cudaError_t (*MemPoolGetAttribute)(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
  cudaError_t (*MemPoolSetAttribute)(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
  cudaError_t (*MallocAsync)(void** data, std::size_t bytes, cudaStream_t stream);
  cudaError_t (*FreeAsync)(void* data, cudaStream_t stream);
  cudaError_t (*HostAlloc)(void** data, std::size_t bytes, unsigned int flags);
  cudaError_t (*FreeHost)(void* data);
  cudaError_t (*MemcpyAsync)(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                             cudaStream_t stream);
  cudaError_t (*MemsetAsync)(void* data, int value, std::size_t bytes, cudaStream_t stream);
  cudaError_t (*StreamCreate)(cudaStream_t* stream);
  cudaError_t (*StreamDestroy)(cudaStream_t stream);
  cudaError_t (*StreamSynchronize)(cudaStream_t stream);
  cudaError_t (*StreamWaitEvent)(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
  cudaError_t (*EventCreateWithFlags)(cudaEvent_t* event, unsigned int flags);
  cudaError_t (*EventDestroy)(cudaEvent_t event);
  cudaError_t (*EventRecord)(cudaEvent_t event, cudaStream_t stream);
  cudaError_t (*EventQuery)(cudaEvent_t event);
  cudaError_t (*EventSynchronize)(cudaEvent_t event);
  cudaError_t (*EventElapsedTime)(float* ms, cudaEvent_t start, cudaEvent_t end);
  cudaError_t (*StreamBeginCapture)(cudaStream_t stream, cudaStreamCaptureMode mode);
  cudaError_t (*StreamEndCapture)(cudaStream_t stream, cudaGraph_t* graph);
  cudaError_t (*GraphInstantiate)(cudaGraphExec_t* launchable, cudaGraph_t graph,
                                  unsigned long long flags);
  cudaError_t (*GraphLaunch)(cudaGraphExec_t launchable, cudaStream_t stream);
  cudaError_t (*GraphDestroy)(cudaGraph_t graph);
  cudaError_t (*GraphExecDestroy)(cudaGraphExec_t launchable);
  cudaError_t (*GetLastError)();
  // Kernels are launched on the GPU if this is null. Otherwise a kernel is this work, a loop on the
  // host, which is queued on the stream.
  void (*run_on_host)(cudaStream_t stream, std::function<void()> work);
  // The functions of cuBLAS, cuDNN and NCCL; null: those of the installed libraries, loaded at
  // first use.
  const ops::cuda::Blas* blas;
  const ops::cuda::Dnn* dnn;
  const ops::cuda::Nccl* nccl;
};

// Returns the CUDA runtime itself.
const Runtime& runtime();

// Throws DeviceError, which says what was being done and what CUDA calls the error.
[[noreturn]] void fail(cudaError_t result, const std::string& what);
// The same unless `result` is success, with the words joined; they cost nothing on success.
template <class... Words>
void check(cudaError_t result, const Words&... what) {
  if (result != cudaSuccess) fail(result, str(what...));
}

}  // namespace shoal::cuda
