// A stream of a CUDA device: copies, kernels and the kernel libraries' calls in one order.
#pragma once

#include <memory>
#include <string>

#include "shoal/tensor/context.h"
#include "shoal/tensor/cuda/default_stream.h"
#include "shoal/tensor/cuda/runtime.h"
#include "shoal/tensor/device.h"

namespace shoal::cuda {

// Every function throws DeviceError if CUDA reports an error, also one of work queued earlier.
class CudaStream final : public Stream {
 public:
  CudaStream(const Runtime& runtime, int ordinal, DefaultStream& default_stream);
  // Waits for what was queued; errors are dropped.
  ~CudaStream() override;

  void upload(std::byte* device, const std::byte* host, std::size_t bytes) override;
  void download(std::byte* host, const std::byte* device, std::size_t bytes) override;
  bool records() const override { return true; }

  const Runtime& runtime() const { return runtime_; }
  int ordinal() const { return ordinal_; }
  // Makes the stream's device the calling thread's, as every launch needs it, and returns CUDA's
  // stream.
  cudaStream_t handle() const;
  // Throws if CUDA refused the launch before this. `kernel` names it.
  void check_launch(const char* kernel) const;

  // A kernel library's own for this stream (its handle); made by the first kernel that needs it.
  std::shared_ptr<void> blas, dnn;

 private:
  void wait() override;
  std::unique_ptr<Recording> keep(const std::function<void()>& queue) override;

  const Runtime& runtime_;
  const int ordinal_;
  DefaultStream& default_stream_;
  cudaStream_t handle_ = nullptr;
};

// Returns the stream of a context whose device is a CudaDevice.
inline CudaStream& stream_of(Context& ctx) { return static_cast<CudaStream&>(*ctx.stream()); }

}  // namespace shoal::cuda
