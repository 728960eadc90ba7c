// A GPU as a device: its memory and its streams.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "shoal/base/mutex.h"
#include "shoal/tensor/cuda/default_stream.h"
#include "shoal/tensor/cuda/runtime.h"
#include "shoal/tensor/device.h"

namespace shoal::cuda {

// A kernel library's knowledge of a GPU, for all streams there; made by the first that needs it.
struct LibraryFindings {
  Mutex mutex;
  std::shared_ptr<void> dnn GUARDED_BY(mutex);
};

class CudaDevice final : public Device {
 public:
  // `ordinal`: CUDA's number of the GPU, which exists. The backend and the runtime outlive it.
  CudaDevice(int ordinal, const ops::Backend& backend, const Runtime& runtime = cuda::runtime());

  std::string name() const override;  // "cuda:0"
  // Returns "NAME, compute capability 9.0, 132 multiprocessors, 81089 MiB of memory, 80550 MiB
  // free". Throws DeviceError.
  std::string describe() const;
  bool is_host() const override { return false; }
  // Throws DeviceError, which says how much memory is free, if there is not enough.
  std::shared_ptr<Memory> allocate(std::size_t bytes) const override;
  // Returns the peak of the driver's pool: without what CUDA, its libraries and CUDA graphs hold
  // themselves.
  std::optional<std::size_t> peak_bytes() const override;
  void reset_peak_bytes() const override;
  std::shared_ptr<Stream> make_stream() const override;
  std::unique_ptr<Event> make_event(bool timed) const override;
  // Pinned, if that is possible, so that copies run beside kernels.
  std::shared_ptr<Memory> allocate_on_host(std::size_t bytes) const override;
  const ops::Backend* backend() const override { return &backend_; }
  const Runtime& runtime() const { return runtime_; }
  DefaultStream& default_stream() const { return default_stream_; }
  LibraryFindings& findings() const { return findings_; }

 private:
  cudaMemPool_t pool() const;

  const int ordinal_;
  const ops::Backend& backend_;
  const Runtime& runtime_;
  mutable DefaultStream default_stream_;
  mutable LibraryFindings findings_;
};

}  // namespace shoal::cuda
