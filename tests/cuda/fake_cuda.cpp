#include "cuda/fake_cuda.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "cuda/fake_libraries.h"
#include "shoal/base/random.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/tensor/cuda/device.h"

// CUDA's own header leaves it opaque.
struct CUstream_st {
  std::deque<std::function<void()>> queue;
  shoal::Random random{7};
};

namespace shoal::test {
namespace {

constexpr std::size_t kTotal = std::size_t{16} << 30;

struct Fakes {
  std::recursive_mutex mutex;  // of all that follows and of every stream
  std::set<cudaStream_t> streams;
  std::map<const std::byte*, std::size_t> blocks;  // of the GPUs' memory: address, bytes
  int allocations_left = 0, copies_left = 0;       // until one fails; 0: none does
  cudaError_t sticky = cudaSuccess, last = cudaSuccess;
};
Fakes& fakes() {
  static Fakes all;
  return all;
}

cudaError_t report(cudaError_t result) {
  const std::lock_guard lock(fakes().mutex);
  if (fakes().sticky != cudaSuccess) result = fakes().sticky;
  if (result != cudaSuccess) fakes().last = result;
  return result;
}

// Whether this call is the one that fails.
bool counts_down(int& left) {
  const std::lock_guard lock(fakes().mutex);
  return left > 0 && --left == 0;
}

void run(CUstream_st& stream, std::size_t count) {
  for (; count > 0 && !stream.queue.empty(); --count) {
    const std::function<void()> work = std::move(stream.queue.front());
    stream.queue.pop_front();
    work();
  }
}

void queue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(fakes().mutex);
  stream->queue.push_back(std::move(work));
  if (stream->random.uniform(0, 1) < 0.25)
    run(*stream, stream->random.below(stream->queue.size() + 1));
}

cudaError_t allocate(void** data, std::size_t bytes) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return report(*data ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t malloc_async(void** data, std::size_t bytes, cudaStream_t) {
  if (counts_down(fakes().allocations_left)) return report(cudaErrorMemoryAllocation);
  const cudaError_t result = allocate(data, bytes);
  const std::lock_guard lock(fakes().mutex);
  if (result == cudaSuccess) fakes().blocks[static_cast<const std::byte*>(*data)] = bytes;
  return result;
}

// As on a GPU: the default stream waits for what was queued on the others.
cudaError_t free_async(void* data, cudaStream_t) {
  const std::lock_guard lock(fakes().mutex);
  for (CUstream_st* stream : fakes().streams) run(*stream, stream->queue.size());
  fakes().blocks.erase(static_cast<const std::byte*>(data));
  std::free(data);
  return report(cudaSuccess);
}

cudaError_t memcpy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                         cudaStream_t stream) {
  if (counts_down(fakes().copies_left)) {
    const std::lock_guard lock(fakes().mutex);
    fakes().sticky = cudaErrorIllegalAddress;
  }
  if (const cudaError_t result = report(cudaSuccess); result != cudaSuccess) return result;
  queue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

}  // namespace

const cuda::Runtime& fake_cuda() {
  static const cuda::Runtime table = {
      .GetDeviceCount = [](int* count) { return *count = 2, report(cudaSuccess); },
      .SetDevice =
          [](int device) {
            return report(device == 0 || device == 1 ? cudaSuccess : cudaErrorInvalidDevice);
          },
      .GetDeviceProperties =
          [](cudaDeviceProp* properties, int) {
            *properties = {};
            std::strcpy(properties->name, "fake");
            return report(cudaSuccess);
          },
      .MemGetInfo =
          [](std::size_t* available, std::size_t* total) {
            *available = *total = kTotal;
            return report(cudaSuccess);
          },
      .MallocAsync = malloc_async,
      .FreeAsync = free_async,
      .HostAlloc = [](void** data, std::size_t bytes,
                      unsigned int) { return allocate(data, bytes); },
      .FreeHost = [](void* data) { return std::free(data), cudaSuccess; },
      .MemcpyAsync = memcpy_async,
      // of the default stream alone, on memory that no stream uses yet
      .MemsetAsync =
          [](void* data, int value, std::size_t bytes, cudaStream_t) {
            std::memset(data, value, bytes);
            return report(cudaSuccess);
          },
      .StreamCreate =
          [](cudaStream_t* stream) {
            const std::lock_guard lock(fakes().mutex);
            *stream = std::make_unique<CUstream_st>().release();
            fakes().streams.insert(*stream);
            return report(cudaSuccess);
          },
      .StreamDestroy =
          [](cudaStream_t stream) {
            const std::lock_guard lock(fakes().mutex);
            fakes().streams.erase(stream);
            const std::unique_ptr<CUstream_st> owned(stream);
            return cudaSuccess;
          },
      .StreamSynchronize =
          [](cudaStream_t stream) {
            const std::lock_guard lock(fakes().mutex);
            run(*stream, stream->queue.size());
            return report(cudaSuccess);
          },
      .GetLastError =
          [] {
            const std::lock_guard lock(fakes().mutex);
            return std::exchange(fakes().last, fakes().sticky);
          },
      .run_on_host = queue,
      .blas = &fake_blas(),
      .dnn = &fake_dnn(),
  };
  return table;
}

const Device& fake_gpu(int ordinal) {
  static const cuda::CudaDevice devices[] = {{0, ops::cuda::backend(), fake_cuda()},
                                             {1, ops::cuda::backend(), fake_cuda()}};
  return devices[ordinal];
}

bool in_fake_memory(const void* data, std::size_t bytes) {
  const std::lock_guard lock(fakes().mutex);
  const std::byte* const first = static_cast<const std::byte*>(data);
  const auto behind = fakes().blocks.upper_bound(first);
  if (behind == fakes().blocks.begin()) return false;
  const auto& [block, size] = *std::prev(behind);
  return first + bytes <= block + size;
}

void fail_allocation(int n) { fakes().allocations_left = n; }
void fail_copy(int n) { fakes().copies_left = n; }
void reset_fakes() {
  const std::lock_guard lock(fakes().mutex);
  fakes().allocations_left = fakes().copies_left = 0;
  fakes().sticky = fakes().last = cudaSuccess;
}

}  // namespace shoal::test
