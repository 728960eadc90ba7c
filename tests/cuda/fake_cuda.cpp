#include "cuda/fake_cuda.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "cuda/fake_libraries.h"
#include "cuda/fake_stream.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/tensor/cuda/device.h"

// CUDA's own header leaves these opaque.
struct CUmemPoolHandle_st {
  std::uint64_t used = 0, high = 0;  // bytes
};
struct CUevent_st {
  int device = 0;
  cudaStream_t stream = nullptr;  // of the last record; null: none
  bool timed = false;
  std::uint64_t recorded = 0, reached = 0;
  std::chrono::steady_clock::time_point when{};  // it was reached
};

namespace shoal::test {
namespace {

thread_local int current_device = 0;

constexpr std::size_t kTotal = std::size_t{16} << 30;

struct Fakes {
  std::recursive_mutex mutex;  // of all that follows and of every stream
  std::set<cudaStream_t> streams;
  struct Block {
    std::size_t bytes;
    int device;
  };
  using Blocks = std::map<const std::byte*, Block>;  // by address
  Blocks blocks, pinned;  // of the GPUs' memory, and of the host's that they copy to beside work
  std::array<CUmemPoolHandle_st, kFakeGpus> pools;
  int allocations_left = 0, copies_left = 0;  // until one fails; 0: none does
  cudaError_t sticky = cudaSuccess, last = cudaSuccess;
  FakeCalls calls;
};
Fakes& fakes() {
  static Fakes all;
  return all;
}

// Returns whether this call is the one that fails.
bool counts_down(int& left) {
  const std::lock_guard lock(fakes().mutex);
  return left > 0 && --left == 0;
}

// The block in which these bytes lie; null: in none.
const Fakes::Block* block_of(const Fakes::Blocks& blocks, const void* data, std::size_t bytes) {
  const std::byte* const first = static_cast<const std::byte*>(data);
  const auto behind = blocks.upper_bound(first);
  if (behind == blocks.begin()) return nullptr;
  const auto& [start, block] = *std::prev(behind);
  return first + bytes <= start + block.bytes ? &block : nullptr;
}

void run(CUstream_st& stream, std::size_t count) {
  for (; count > 0 && !stream.queue.empty(); --count) {
    const std::function<void()> work = std::move(stream.queue.front());
    stream.queue.pop_front();
    work();
  }
}

cudaError_t allocate(void** data, std::size_t bytes) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return report(*data ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t allocate_pinned(void** data, std::size_t bytes, unsigned int) {
  const std::lock_guard lock(fakes().mutex);
  if (const cudaError_t error = breaks_by_waiting(); error != cudaSuccess) return error;
  const cudaError_t result = allocate(data, bytes);
  fakes().pinned[static_cast<const std::byte*>(*data)] = {bytes, 0};
  return result;
}

cudaError_t free_pinned(void* data) {
  const std::lock_guard lock(fakes().mutex);
  fakes().pinned.erase(static_cast<const std::byte*>(data));
  std::free(data);
  return cudaSuccess;
}

cudaError_t malloc_async(void** data, std::size_t bytes, cudaStream_t) {
  if (const cudaError_t error = breaks_by_default(); error != cudaSuccess) return error;
  if (counts_down(fakes().allocations_left)) return report(cudaErrorMemoryAllocation);
  const cudaError_t result = allocate(data, bytes);
  const std::lock_guard lock(fakes().mutex);
  ++fakes().calls.allocations;
  if (result != cudaSuccess) return result;
  fakes().blocks[static_cast<const std::byte*>(*data)] = {bytes, current_device};
  CUmemPoolHandle_st& pool = fakes().pools[static_cast<std::size_t>(current_device)];
  pool.high = std::max(pool.high, pool.used += bytes);
  return result;
}

// Lets, as a GPU does, the default stream wait for what was queued on the others.
cudaError_t free_async(void* data, cudaStream_t) {
  const std::lock_guard lock(fakes().mutex);
  EXPECT_EQ(breaks_by_default(), cudaSuccess) << "memory freed while a stream is captured";
  ++fakes().calls.frees;
  for (CUstream_st* stream : fakes().streams) run(*stream, stream->queue.size());
  if (const Fakes::Block* const block = block_of(fakes().blocks, data, 1))
    fakes().pools[static_cast<std::size_t>(block->device)].used -= block->bytes;
  fakes().blocks.erase(static_cast<const std::byte*>(data));
  std::free(data);
  return report(cudaSuccess);
}

cudaError_t pool_of(cudaMemPool_t* pool, int device) {
  if (device < 0 || device >= kFakeGpus) return report(cudaErrorInvalidDevice);
  *pool = &fakes().pools[static_cast<std::size_t>(device)];
  return report(cudaSuccess);
}

cudaError_t get_attribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::lock_guard lock(fakes().mutex);
  if (attribute != cudaMemPoolAttrUsedMemHigh && attribute != cudaMemPoolAttrUsedMemCurrent)
    return report(cudaErrorInvalidValue);
  *static_cast<std::uint64_t*>(value) =
      attribute == cudaMemPoolAttrUsedMemHigh ? pool->high : pool->used;
  return report(cudaSuccess);
}

// The high mark alone, to zero.
cudaError_t set_attribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::lock_guard lock(fakes().mutex);
  if (attribute != cudaMemPoolAttrUsedMemHigh || *static_cast<std::uint64_t*>(value) != 0)
    return report(cudaErrorInvalidValue);
  pool->high = 0;
  return report(cudaSuccess);
}

// Counts a wait for the stream, unless nothing was queued since the last.
void wait_for(CUstream_st& stream) {
  if (!std::exchange(stream.waited_for, true)) ++fakes().calls.waits;
  run(stream, stream.queue.size());
}

// Waits, as a GPU does, for a copy to memory of the host that is not pinned.
cudaError_t memcpy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
  const std::lock_guard lock(fakes().mutex);
  if (counts_down(fakes().copies_left)) fakes().sticky = cudaErrorIllegalAddress;
  if (const cudaError_t result = report(cudaSuccess); result != cudaSuccess) return result;
  queue(stream, [=] { std::memcpy(to, from, bytes); });
  ++fakes().calls.copies;
  if (kind == cudaMemcpyHostToDevice) fakes().calls.uploaded += static_cast<std::int64_t>(bytes);
  if (kind == cudaMemcpyDeviceToHost && !block_of(fakes().pinned, to, bytes)) wait_for(*stream);
  return cudaSuccess;
}

cudaError_t synchronize(cudaStream_t stream) {
  const std::lock_guard lock(fakes().mutex);
  if (stream->captured) return breaks(stream, cudaErrorStreamCaptureUnsupported);
  wait_for(*stream);
  return report(cudaSuccess);
}

// A kernel, or what a library does.
void launch(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(fakes().mutex);
  if (!stream->captured) ++fakes().calls.launches;
  queue(stream, std::move(work));
}

cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(fakes().mutex);
  if (event->device != stream->device) return report(cudaErrorInvalidResourceHandle);
  if (stream->captured) return breaks(stream, cudaErrorStreamCaptureUnsupported);
  event->stream = stream;
  queue(stream, [event, n = ++event->recorded] {
    event->reached = n;
    event->when = std::chrono::steady_clock::now();
  });
  return report(cudaSuccess);
}

cudaError_t wait_event(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  const std::lock_guard lock(fakes().mutex);
  if (stream->captured) return breaks(stream, cudaErrorStreamCaptureIsolation);
  queue(stream, [event, of = event->stream, n = event->recorded] {
    if (event->reached < n) run_until(of, [=] { return event->reached >= n; });
  });
  return report(cudaSuccess);
}

cudaError_t wait_for_event(cudaEvent_t event) {
  const std::lock_guard lock(fakes().mutex);
  if (const cudaError_t error = breaks_by_waiting(); error != cudaSuccess) return error;
  if (event->reached < event->recorded)
    run_until(event->stream, [=, n = event->recorded] { return event->reached >= n; });
  return report(cudaSuccess);
}

cudaError_t create_event(cudaEvent_t* event, unsigned int flags) {
  if (flags != cudaEventDisableTiming && flags != cudaEventDefault)
    return report(cudaErrorInvalidValue);
  *event = std::make_unique<CUevent_st>(
               CUevent_st{.device = current_device, .timed = flags == cudaEventDefault})
               .release();
  return report(cudaSuccess);
}

// Lets, as a GPU does, what was queued with it go on.
cudaError_t destroy_event(cudaEvent_t event) {
  const std::lock_guard lock(fakes().mutex);
  for (CUstream_st* stream : fakes().streams) run(*stream, stream->queue.size());
  const std::unique_ptr<CUevent_st> owned(event);
  return cudaSuccess;
}

cudaError_t elapsed(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const std::lock_guard lock(fakes().mutex);
  if (!start->timed || !end->timed || start->recorded == 0 || end->recorded == 0)
    return report(cudaErrorInvalidResourceHandle);
  if (start->reached < start->recorded || end->reached < end->recorded) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(end->when - start->when).count();
  return report(cudaSuccess);
}

cudaError_t query_event(cudaEvent_t event) {
  const std::lock_guard lock(fakes().mutex);
  if (const cudaError_t error = breaks_by_waiting(); error != cudaSuccess) return error;
  // Work goes on while it is asked after.
  if (event->reached < event->recorded && !event->stream->queue.empty()) run(*event->stream, 1);
  return event->reached < event->recorded ? cudaErrorNotReady : report(cudaSuccess);
}

}  // namespace

std::recursive_mutex& fake_mutex() { return fakes().mutex; }
const std::set<cudaStream_t>& fake_streams() { return fakes().streams; }
FakeCalls& counted() { return fakes().calls; }
int current_gpu() { return current_device; }

cudaError_t report(cudaError_t result) {
  const std::lock_guard lock(fakes().mutex);
  if (fakes().sticky != cudaSuccess) result = fakes().sticky;
  if (result != cudaSuccess) fakes().last = result;
  return result;
}

void queue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(fakes().mutex);
  EXPECT_EQ(stream->device, current_device) << "work of another GPU than the thread's";
  if (stream->captured) return stream->captured->work.push_back(std::move(work));
  stream->queue.push_back(std::move(work));
  stream->waited_for = false;
  if (stream->random.uniform(0, 1) < 0.25)
    run(*stream, stream->random.below(stream->queue.size() + 1));
}

void run_until(cudaStream_t stream, const std::function<bool()>& reached) {
  const std::lock_guard lock(fakes().mutex);
  while (!reached() && !stream->queue.empty()) run(*stream, 1);
}

void queue_together(const std::vector<std::pair<cudaStream_t, std::function<void()>>>& work) {
  const std::lock_guard lock(fakes().mutex);
  for (const auto& [stream, one] : work) {
    stream->queue.push_back(one);
    stream->waited_for = false;
  }
}

int fake_device_of(cudaStream_t stream) { return stream->device; }

const cuda::Runtime& fake_cuda() {
  static const cuda::Runtime table = {
      .GetDeviceCount = [](int* count) { return *count = kFakeGpus, report(cudaSuccess); },
      .SetDevice =
          [](int device) {
            if (device < 0 || device >= kFakeGpus) return report(cudaErrorInvalidDevice);
            current_device = device;
            return report(cudaSuccess);
          },
      .GetDeviceProperties =
          [](cudaDeviceProp* properties, int) {
            *properties = {};
            properties->major = 9;
            std::strcpy(properties->name, "fake");
            return report(cudaSuccess);
          },
      .MemGetInfo =
          [](std::size_t* available, std::size_t* total) {
            *available = *total = kTotal;
            return report(cudaSuccess);
          },
      .DeviceGetDefaultMemPool = pool_of,
      .MemPoolGetAttribute = get_attribute,
      .MemPoolSetAttribute = set_attribute,
      .MallocAsync = malloc_async,
      .FreeAsync = free_async,
      .HostAlloc = allocate_pinned,
      .FreeHost = free_pinned,
      .MemcpyAsync = memcpy_async,
      // Serves the default stream alone, on memory that no stream uses yet.
      .MemsetAsync =
          [](void* data, int value, std::size_t bytes, cudaStream_t) {
            if (const cudaError_t error = breaks_by_default(); error != cudaSuccess) return error;
            std::memset(data, value, bytes);
            return report(cudaSuccess);
          },
      .StreamCreate =
          [](cudaStream_t* stream) {
            const std::lock_guard lock(fakes().mutex);
            *stream = std::make_unique<CUstream_st>(CUstream_st{current_device}).release();
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
      .StreamSynchronize = synchronize,
      .StreamWaitEvent = wait_event,
      .EventCreateWithFlags = create_event,
      .EventDestroy = destroy_event,
      .EventRecord = record,
      .EventQuery = query_event,
      .EventSynchronize = wait_for_event,
      .EventElapsedTime = elapsed,
      .StreamBeginCapture = begin_fake_capture,
      .StreamEndCapture = end_fake_capture,
      .GraphInstantiate = instantiate_fake,
      .GraphLaunch = launch_fake_graph,
      .GraphDestroy = destroy_fake_graph,
      .GraphExecDestroy = destroy_launchable,
      .GetLastError =
          [] {
            const std::lock_guard lock(fakes().mutex);
            return std::exchange(fakes().last, fakes().sticky);
          },
      .run_on_host = launch,
      .blas = &fake_blas(),
      .dnn = &fake_dnn(),
      .nccl = &fake_nccl(),
  };
  return table;
}

const Device& fake_gpu(int ordinal) {
  static const cuda::CudaDevice devices[kFakeGpus] = {{0, ops::cuda::backend(), fake_cuda()},
                                                      {1, ops::cuda::backend(), fake_cuda()},
                                                      {2, ops::cuda::backend(), fake_cuda()}};
  return devices[ordinal];
}

bool in_fake_memory(const void* data, std::size_t bytes, int device) {
  const std::lock_guard lock(fakes().mutex);
  const Fakes::Block* const block = block_of(fakes().blocks, data, bytes);
  return block != nullptr && (device < 0 || device == block->device);
}

FakeCalls FakeCalls::operator-(const FakeCalls& other) const {
  return {allocations - other.allocations,
          frees - other.frees,
          waits - other.waits,
          copies - other.copies,
          uploaded - other.uploaded,
          launches - other.launches,
          recordings - other.recordings,
          graph_launches - other.graph_launches};
}

FakeCalls fake_calls() {
  const std::lock_guard lock(fakes().mutex);
  return fakes().calls;
}

void fail_allocation(int n) { fakes().allocations_left = n; }
void fail_copy(int n) { fakes().copies_left = n; }
void reset_fakes() {
  const std::lock_guard lock(fakes().mutex);
  fakes().allocations_left = fakes().copies_left = 0;
  fakes().sticky = fakes().last = cudaSuccess;
  refuse_graphs(GraphCall::kNone);
}

}  // namespace shoal::test
