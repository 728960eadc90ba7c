#include "shoal/tensor/cuda/stream.h"

namespace shoal::cuda {
namespace {

// Launches a CUDA graph that was captured.
class CudaRecording final : public Recording {
 public:
  CudaRecording(const CudaStream& stream, cudaGraph_t graph) : stream_(stream) {
    check(stream.runtime().GraphInstantiate(&launchable_, graph, 0), "making a graph launchable");
  }
  // A graph that was launched goes on.
  ~CudaRecording() override { stream_.runtime().GraphExecDestroy(launchable_); }
  CudaRecording(const CudaRecording&) = delete;

  void replay() override {
    check(stream_.runtime().GraphLaunch(launchable_, stream_.handle()), "launching a graph on GPU ",
          stream_.ordinal());
  }

 private:
  const CudaStream& stream_;
  cudaGraphExec_t launchable_ = nullptr;
};

// Captures a stream, until end() or the end of its life.
class Capture {
 public:
  explicit Capture(const CudaStream& stream) : stream_(stream), handle_(stream.handle()) {
    check(stream.runtime().StreamBeginCapture(handle_, cudaStreamCaptureModeThreadLocal),
          "starting to record");
  }
  ~Capture() {
    if (!ended_) stream_.runtime().StreamEndCapture(handle_, &graph_);
    if (graph_ != nullptr) stream_.runtime().GraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;

  std::unique_ptr<Recording> end() {
    ended_ = true;
    check(stream_.runtime().StreamEndCapture(handle_, &graph_), "recording");
    return std::make_unique<CudaRecording>(stream_, graph_);
  }

 private:
  const CudaStream& stream_;
  const cudaStream_t handle_;
  cudaGraph_t graph_ = nullptr;
  bool ended_ = false;
};

}  // namespace

CudaStream::CudaStream(const Runtime& runtime, int ordinal, DefaultStream& default_stream)
    : runtime_(runtime), ordinal_(ordinal), default_stream_(default_stream) {
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
  not_recording("it copies from the host");
  check(runtime_.MemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, handle()), "copying ",
        bytes, " bytes to GPU ", ordinal_);
}

void CudaStream::download(std::byte* host, const std::byte* device, std::size_t bytes) {
  not_recording("it copies to the host");
  check(runtime_.MemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, handle()), "copying ",
        bytes, " bytes from GPU ", ordinal_);
}

void CudaStream::wait() {
  check(runtime_.StreamSynchronize(handle()), "the work queued on GPU ", ordinal_);
}

std::unique_ptr<Recording> CudaStream::keep(const std::function<void()>& queue) {
  const DefaultStream::Capture others_wait(default_stream_);
  try {
    Capture capture(*this);
    queue();
    return capture.end();
  } catch (...) {
    runtime_.GetLastError();  // forgotten, so that other work goes on
    throw;
  }
}

void CudaStream::check_launch(const char* kernel) const {
  check(runtime_.GetLastError(), "starting ", kernel, " on GPU ", ordinal_);
}

}  // namespace shoal::cuda
