// An event of a CUDA device: a place in a stream's order, for which others wait.
#pragma once

#include "shoal/tensor/cuda/runtime.h"
#include "shoal/tensor/device.h"

namespace shoal::cuda {

// Every function throws DeviceError if CUDA reports an error, also one of work queued earlier.
class CudaEvent final : public Event {
 public:
  CudaEvent(const Runtime& runtime, int ordinal, bool timed = false);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;

  // `stream` is a CudaStream of the event's GPU.
  void record(Stream& stream) override;
  void hold(Stream& stream) override;
  void wait() override;
  double seconds_since(Event& earlier) override;
  // Returns whether wait() would return, without waiting.
  bool reached() const;

 private:
  const Runtime& runtime_;
  const int ordinal_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace shoal::cuda
