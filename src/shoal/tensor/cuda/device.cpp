#include "shoal/tensor/cuda/device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "shoal/base/error.h"
#include "shoal/tensor/cuda/event.h"
#include "shoal/tensor/cuda/stream.h"

namespace shoal::cuda {
namespace {

// A block from the driver's own pool, which gives what is free back when a stream is waited for. It
// is allocated, cleared and freed in the order of the default stream, so that work of other streams
// that uses it comes between.
class CudaMemory final : public Memory {
 public:
  CudaMemory(const CudaDevice& device, int ordinal, std::size_t bytes)
      : Memory(&device, bytes), device_(device), ordinal_(ordinal) {
    device_.default_stream().use([this] { take(); });
  }
  ~CudaMemory() override {
    device_.runtime().SetDevice(ordinal_);
    device_.default_stream().free(data_);
  }

 private:
  void take() {
    const Runtime& runtime = device_.runtime();
    check(runtime.SetDevice(ordinal_), "choosing GPU ", ordinal_);
    const std::size_t size = std::max<std::size_t>(bytes(), 1);
    void* data = nullptr;
    if (const cudaError_t result = runtime.MallocAsync(&data, size, nullptr);
        result != cudaSuccess) {
      runtime.GetLastError();  // forgotten, so that other work goes on
      std::size_t available = 0, total = 0;
      runtime.MemGetInfo(&available, &total);
      check(result, "allocating ", bytes(), " bytes on GPU ", ordinal_, ", where ", available,
            " of ", total, " bytes are free",
            result == cudaErrorMemoryAllocation ? " (a smaller batch needs less)"
            : result == cudaErrorNotSupported   ? " (it, or its driver, has no memory pools)"
                                                : "");
    }
    data_ = static_cast<std::byte*>(data);
    check(runtime.MemsetAsync(data, 0, size, nullptr), "clearing ", bytes(), " bytes on GPU ",
          ordinal_);
  }

  const CudaDevice& device_;
  const int ordinal_;
};

// Pinned memory of the host.
class PinnedMemory final : public Memory {
 public:
  PinnedMemory(void* data, std::size_t bytes, const Runtime& runtime)
      : Memory(nullptr, bytes), runtime_(runtime) {
    std::memset(data, 0, bytes);
    data_ = static_cast<std::byte*>(data);
  }
  ~PinnedMemory() override { runtime_.FreeHost(data_); }

 private:
  const Runtime& runtime_;
};

}  // namespace

CudaDevice::CudaDevice(int ordinal, const ops::Backend& backend, const Runtime& runtime)
    : ordinal_(ordinal), backend_(backend), runtime_(runtime), default_stream_(runtime) {}

std::string CudaDevice::name() const { return str("cuda:", ordinal_); }

std::string CudaDevice::describe() const {
  cudaDeviceProp properties{};
  check(runtime_.GetDeviceProperties(&properties, ordinal_), "asking what GPU ", ordinal_, " is");
  check(runtime_.SetDevice(ordinal_), "choosing GPU ", ordinal_);
  std::size_t available = 0, total = 0;
  check(runtime_.MemGetInfo(&available, &total), "asking for the memory of GPU ", ordinal_);
  return str(properties.name, ", compute capability ", properties.major, ".", properties.minor,
             ", ", properties.multiProcessorCount, " multiprocessors, ", total >> 20,
             " MiB of memory, ", available >> 20, " MiB free");
}

std::shared_ptr<Memory> CudaDevice::allocate(std::size_t bytes) const {
  return std::make_shared<CudaMemory>(*this, ordinal_, bytes);
}

// Returns the pool that cudaMallocAsync takes from.
cudaMemPool_t CudaDevice::pool() const {
  cudaMemPool_t pool = nullptr;
  check(runtime_.DeviceGetDefaultMemPool(&pool, ordinal_), "asking for the memory pool of GPU ",
        ordinal_);
  return pool;
}

// The high mark is set back to zero, and CUDA does not say that it counts what stays in use before
// more is allocated.
std::optional<std::size_t> CudaDevice::peak_bytes() const {
  std::size_t most = 0;
  for (const cudaMemPoolAttr mark : {cudaMemPoolAttrUsedMemHigh, cudaMemPoolAttrUsedMemCurrent}) {
    std::uint64_t bytes = 0;
    check(runtime_.MemPoolGetAttribute(pool(), mark, &bytes), "asking for the peak memory of GPU ",
          ordinal_);
    most = std::max<std::size_t>(most, bytes);
  }
  return most;
}

void CudaDevice::reset_peak_bytes() const {
  std::uint64_t zero = 0;
  check(runtime_.MemPoolSetAttribute(pool(), cudaMemPoolAttrUsedMemHigh, &zero),
        "counting the peak memory of GPU ", ordinal_, " anew");
}

// Falls back to memory that is not pinned: copies are slower and the same. A thread that chose no
// GPU would open GPU 0 for it.
std::shared_ptr<Memory> CudaDevice::allocate_on_host(std::size_t bytes) const {
  void* data = nullptr;
  if (runtime_.SetDevice(ordinal_) == cudaSuccess &&
      runtime_.HostAlloc(&data, std::max<std::size_t>(bytes, 1), cudaHostAllocPortable) ==
          cudaSuccess)
    return std::make_shared<PinnedMemory>(data, bytes, runtime_);
  runtime_.GetLastError();  // forgotten
  return host_memory(bytes);
}

std::shared_ptr<Stream> CudaDevice::make_stream() const {
  return std::make_shared<CudaStream>(runtime_, ordinal_, default_stream_);
}

std::unique_ptr<Event> CudaDevice::make_event(bool timed) const {
  return std::make_unique<CudaEvent>(runtime_, ordinal_, timed);
}

}  // namespace shoal::cuda
