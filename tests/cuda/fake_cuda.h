// A CUDA device without a GPU, for tests: memory of its own, streams that run late, kernels as
// loops on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "shoal/tensor/cuda/runtime.h"
#include "shoal/tensor/device.h"

namespace shoal::test {

inline constexpr int kFakeGpus = 3;
// The runtime of a machine with so many GPUs. Its memory is the host's. What is queued on a
// stream runs when the stream is synchronised, or some of it earlier, drawn at random.
const cuda::Runtime& fake_cuda();
// A CudaDevice on it.
const Device& fake_gpu(int ordinal = 0);
// Returns whether these bytes lie in one block of the memory of this GPU, or of any.
bool in_fake_memory(const void* data, std::size_t bytes, int device = -1);
// The other fakes call these: run_until runs what is queued until `reached` or the end;
// fake_device_of returns the stream's GPU.
void run_until(cudaStream_t stream, const std::function<bool()>& reached);
int fake_device_of(cudaStream_t stream);
// Queues work on several streams before any of it runs.
void queue_together(const std::vector<std::pair<cudaStream_t, std::function<void()>>>& work);

// Counts how often a program called these functions of the fake GPUs so far.
struct FakeCalls {
  std::int64_t allocations = 0, frees = 0;
  std::int64_t waits = 0;     // for a stream that had work
  std::int64_t copies = 0;    // between host and GPU
  std::int64_t uploaded = 0;  // bytes, from host to GPU
  std::int64_t launches = 0;  // of kernels, and of the libraries' functions, without those recorded
  std::int64_t recordings = 0, graph_launches = 0;
  FakeCalls operator-(const FakeCalls& other) const;
};
FakeCalls fake_calls();

// Makes the n-th allocation (1: the next) fail for want of memory, or the n-th copy fail for ever,
// as after a fault of the GPU; 0: none. Until reset_fakes().
void fail_allocation(int n);
void fail_copy(int n);
// Names functions of graphs that fail from now on, or none.
enum class GraphCall { kNone, kBegin, kEnd, kInstantiate, kLaunch };
void refuse_graphs(GraphCall call);
// Graphs that were made and not destroyed.
std::int64_t live_graphs();
void reset_fakes();

}  // namespace shoal::test
