// The default stream of a GPU, on which memory is taken and freed, and which CUDA forbids while
// another stream is captured.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "shoal/base/mutex.h"
#include "shoal/tensor/cuda/runtime.h"

namespace shoal::cuda {

// Any thread. One uses the stream, or captures another, at a time.
class DefaultStream {
 public:
  explicit DefaultStream(const Runtime& runtime) : runtime_(runtime) {}

  // Calls `use`, after the capture of another thread. Throws DeviceError if this thread captures.
  template <class F>
  void use(F use) {
    if (is_captured_here()) throw DeviceError("it takes memory of the device");
    const MutexLock lock(mutex_);
    use();
  }
  // Frees memory in the stream's order; after the capture, if this thread captures.
  void free(void* data) {
    if (is_captured_here()) return freed_.push_back(data);
    const MutexLock lock(mutex_);
    runtime_.FreeAsync(data, nullptr);
  }

  // While it lives, this thread captures.
  class Capture {
   public:
    explicit Capture(DefaultStream& stream) : stream_(stream), lock_(stream.mutex_) {
      stream_.thread_ = std::this_thread::get_id();
    }
    ~Capture() {
      stream_.thread_ = std::thread::id();
      for (void* const data : stream_.freed_) stream_.runtime_.FreeAsync(data, nullptr);
      stream_.freed_.clear();
    }
    Capture(const Capture&) = delete;

   private:
    DefaultStream& stream_;
    const MutexLock lock_;
  };

 private:
  bool is_captured_here() const { return thread_ == std::this_thread::get_id(); }

  const Runtime& runtime_;
  Mutex mutex_;
  std::atomic<std::thread::id> thread_{};  // that captures
  std::vector<void*> freed_;               // while it does
};

}  // namespace shoal::cuda
