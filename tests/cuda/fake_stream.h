// A stream of the fake GPUs as the files of the fake know it, and the functions of its graphs.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cuda/fake_cuda.h"
#include "shoal/base/random.h"

// CUDA's own header leaves these opaque.
struct CUgraph_st {
  std::vector<std::function<void()>> work{};
  cudaError_t broken = cudaSuccess;  // by a call that a capture forbids
  std::thread::id thread = std::this_thread::get_id();
};
struct CUstream_st {
  int device = 0;
  std::unique_ptr<CUgraph_st> captured{};  // null: it is not captured
  std::deque<std::function<void()>> queue{};
  bool waited_for = true;  // since something was queued last
  shoal::Random random{7};
};

namespace shoal::test {

std::recursive_mutex& fake_mutex();  // of every stream, and of what follows
const std::set<cudaStream_t>& fake_streams();
FakeCalls& counted();
int current_gpu();  // of the calling thread
// The error that a call with this result returns.
cudaError_t report(cudaError_t result);
void queue(cudaStream_t stream, std::function<void()> work);

// The error of a call that ends the capture of `stream`, or of any stream where that is null; none
// if nothing is captured that it could end.
cudaError_t breaks(cudaStream_t stream, cudaError_t error);
cudaError_t breaks_by_default();  // as a use of the default stream does
cudaError_t breaks_by_waiting();  // as a call that may wait does, of the thread that captures

cudaError_t begin_fake_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t end_fake_capture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t instantiate_fake(cudaGraphExec_t* launchable, cudaGraph_t graph, unsigned long long);
cudaError_t launch_fake_graph(cudaGraphExec_t launchable, cudaStream_t stream);
cudaError_t destroy_fake_graph(cudaGraph_t graph);
cudaError_t destroy_launchable(cudaGraphExec_t launchable);

}  // namespace shoal::test
