#include "shoal/tensor/cuda/runtime.h"

namespace shoal::cuda {

const Runtime& runtime() {
  static const Runtime table = {
      .GetDeviceCount = &cudaGetDeviceCount,
      .SetDevice = &cudaSetDevice,
      .GetDeviceProperties = &cudaGetDeviceProperties,
      .MemGetInfo = &cudaMemGetInfo,
      .DeviceGetDefaultMemPool = &cudaDeviceGetDefaultMemPool,
      .MemPoolGetAttribute = &cudaMemPoolGetAttribute,
      .MemPoolSetAttribute = &cudaMemPoolSetAttribute,
      .MallocAsync = &cudaMallocAsync,
      .FreeAsync = &cudaFreeAsync,
      .HostAlloc = &cudaHostAlloc,
      .FreeHost = &cudaFreeHost,
      .MemcpyAsync = &cudaMemcpyAsync,
      .MemsetAsync = &cudaMemsetAsync,
      .StreamCreate = &cudaStreamCreate,
      .StreamDestroy = &cudaStreamDestroy,
      .StreamSynchronize = &cudaStreamSynchronize,
      .StreamWaitEvent =
          [](cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
            return cudaStreamWaitEvent(stream, event, flags);
          },
      .EventCreateWithFlags =
          [](cudaEvent_t* event, unsigned int flags) {
            return cudaEventCreateWithFlags(event, flags);
          },
      .EventDestroy = &cudaEventDestroy,
      .EventRecord = [](cudaEvent_t event,
                        cudaStream_t stream) { return cudaEventRecord(event, stream); },
      .EventQuery = &cudaEventQuery,
      .EventSynchronize = &cudaEventSynchronize,
      .EventElapsedTime = [](float* ms, cudaEvent_t start,
                             cudaEvent_t end) { return cudaEventElapsedTime(ms, start, end); },
      .StreamBeginCapture = &cudaStreamBeginCapture,
      .StreamEndCapture = &cudaStreamEndCapture,
      .GraphInstantiate =
          [](cudaGraphExec_t* launchable, cudaGraph_t graph, unsigned long long flags) {
            return cudaGraphInstantiate(launchable, graph, flags);
          },
      .GraphLaunch = &cudaGraphLaunch,
      .GraphDestroy = &cudaGraphDestroy,
      .GraphExecDestroy = &cudaGraphExecDestroy,
      .GetLastError = &cudaGetLastError,
      .run_on_host = nullptr,
      .blas = nullptr,
      .dnn = nullptr,
      .nccl = nullptr,
  };
  return table;
}

void fail(cudaError_t result, const std::string& what) {
  const bool is_other = result == cudaErrorNoKernelImageForDevice ||
                        result == cudaErrorUnsupportedPtxVersion || result == cudaErrorInvalidPtx;
  throw DeviceError(
      str(what, ": CUDA says ", cudaGetErrorName(result), ", ", cudaGetErrorString(result),
          is_other ? ". This build has no code for this GPU: make CUDA_ARCHS=NN, its compute "
                     "capability without the dot, or CUDA_ARCHS=all"
                   : ""));
}

}  // namespace shoal::cuda
