// Graphs of the fake GPUs: work that a captured stream keeps, and what a capture forbids.
#include <gtest/gtest.h>

#include "cuda/fake_stream.h"

// CUDA's own header leaves it opaque.
struct CUgraphExec_st {
  std::vector<std::function<void()>> work{};
};

namespace shoal::test {
namespace {

struct Graphs {
  GraphCall refused = GraphCall::kNone;
  std::int64_t live = 0;
};
Graphs& graphs() {
  static Graphs all;
  return all;
}

bool is_refused(GraphCall call) { return graphs().refused == call; }

template <class Graph>
cudaError_t destroy_graph(Graph* graph) {
  const std::lock_guard lock(fake_mutex());
  --graphs().live;
  const std::unique_ptr<Graph> owned(graph);
  return cudaSuccess;
}

}  // namespace

cudaError_t breaks(cudaStream_t stream, cudaError_t error) {
  const std::lock_guard lock(fake_mutex());
  for (CUstream_st* one : fake_streams()) {
    if (!one->captured || (stream != nullptr && one != stream) || one->device != current_gpu())
      continue;
    one->captured->broken = cudaErrorStreamCaptureInvalidated;
    return report(error);
  }
  return cudaSuccess;
}
cudaError_t breaks_by_default() { return breaks(nullptr, cudaErrorStreamCaptureImplicit); }
cudaError_t breaks_by_waiting() {
  const std::lock_guard lock(fake_mutex());
  for (CUstream_st* one : fake_streams())
    if (one->captured && one->captured->thread == std::this_thread::get_id())
      return breaks(one, cudaErrorStreamCaptureUnsupported);
  return cudaSuccess;
}

cudaError_t begin_fake_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(fake_mutex());
  if (is_refused(GraphCall::kBegin)) return report(cudaErrorNotSupported);
  EXPECT_EQ(mode, cudaStreamCaptureModeThreadLocal) << "other threads copy meanwhile";
  if (stream->captured) return report(cudaErrorIllegalState);
  if (const cudaError_t result = report(cudaSuccess); result != cudaSuccess) return result;
  stream->captured = std::make_unique<CUgraph_st>();
  return cudaSuccess;
}

cudaError_t end_fake_capture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(fake_mutex());
  *graph = nullptr;
  if (!stream->captured) return report(cudaErrorIllegalState);
  const std::unique_ptr<CUgraph_st> captured = std::move(stream->captured);
  if (is_refused(GraphCall::kEnd)) captured->broken = cudaErrorStreamCaptureInvalidated;
  EXPECT_EQ(captured->thread, std::this_thread::get_id());
  if (captured->broken != cudaSuccess) return report(captured->broken);
  ++graphs().live;
  *graph = std::make_unique<CUgraph_st>(*captured).release();
  return report(cudaSuccess);
}

cudaError_t instantiate_fake(cudaGraphExec_t* launchable, cudaGraph_t graph, unsigned long long) {
  const std::lock_guard lock(fake_mutex());
  if (is_refused(GraphCall::kInstantiate)) return report(cudaErrorMemoryAllocation);
  ++graphs().live;
  ++counted().recordings;
  *launchable = std::make_unique<CUgraphExec_st>(CUgraphExec_st{graph->work}).release();
  return report(cudaSuccess);
}

cudaError_t launch_fake_graph(cudaGraphExec_t launchable, cudaStream_t stream) {
  const std::lock_guard lock(fake_mutex());
  if (is_refused(GraphCall::kLaunch)) return report(cudaErrorLaunchFailure);
  if (const cudaError_t result = report(cudaSuccess); result != cudaSuccess) return result;
  ++counted().graph_launches;
  for (const auto& work : launchable->work) queue(stream, work);
  return cudaSuccess;
}

cudaError_t destroy_fake_graph(cudaGraph_t graph) { return destroy_graph(graph); }
cudaError_t destroy_launchable(cudaGraphExec_t launchable) { return destroy_graph(launchable); }

void refuse_graphs(GraphCall call) {
  const std::lock_guard lock(fake_mutex());
  graphs().refused = call;
}
std::int64_t live_graphs() {
  const std::lock_guard lock(fake_mutex());
  return graphs().live;
}

}  // namespace shoal::test
