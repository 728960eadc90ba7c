#include "shoal/tensor/cuda/stream.h"

namespace shoal::cuda {

CudaStream::CudaStream(const Runtime& runtime, int ordinal) : runtime_(runtime), ordinal_(ordinal) {
  check(runtime_.SetDevice(ordinal_), "choosing GPU ", ordinal_);
  // A blocking stream: memory is allocated, cleared and freed on the default stream, which waits
  // for it and for which it waits.
  check(runtime_.StreamCreate(&handle_), "making a stream of GPU ", ordinal_);
}

CudaStream::~CudaStream() {
  runtime_.SetDevice(ordinal_);
  runtime_.StreamSynchronize(handle_);
  blas = dnn = nullptr;
  runtime_.StreamDestroy(handle_);
}

cudaStream_t CudaStream::handle() const {
  check(runtime_.SetDevice(ordinal_), "choosing GPU ", ordinal_);
  return handle_;
}

void CudaStream::upload(std::byte* device, const std::byte* host, std::size_t bytes) {
  check(runtime_.MemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, handle()), "copying ",
        bytes, " bytes to GPU ", ordinal_);
}

void CudaStream::download(std::byte* host, const std::byte* device, std::size_t bytes) {
  check(runtime_.MemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, handle()), "copying ",
        bytes, " bytes from GPU ", ordinal_);
}

void CudaStream::wait() {
  check(runtime_.StreamSynchronize(handle()), "the work queued on GPU ", ordinal_);
}

void CudaStream::check_launch(const char* kernel) const {
  check(runtime_.GetLastError(), "starting ", kernel, " on GPU ", ordinal_);
}

}  // namespace shoal::cuda
