#include "shoal/tensor/cuda/event.h"

#include "shoal/tensor/cuda/stream.h"

namespace shoal::cuda {

CudaEvent::CudaEvent(const Runtime& runtime, int ordinal, bool timed)
    : runtime_(runtime), ordinal_(ordinal) {
  check(runtime_.SetDevice(ordinal_), "choosing GPU ", ordinal_);
  check(runtime_.EventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
        "making an event of GPU ", ordinal_);
}

CudaEvent::~CudaEvent() { runtime_.EventDestroy(event_); }

void CudaEvent::record(Stream& stream) {
  check(runtime_.EventRecord(event_, static_cast<CudaStream&>(stream).handle()),
        "noting a place on GPU ", ordinal_);
}

void CudaEvent::hold(Stream& stream) {
  check(runtime_.StreamWaitEvent(static_cast<CudaStream&>(stream).handle(), event_, 0),
        "ordering work of GPU ", ordinal_);
}

void CudaEvent::wait() {
  check(runtime_.EventSynchronize(event_), "the work queued on GPU ", ordinal_);
}

double CudaEvent::seconds_since(Event& earlier) {
  wait();
  earlier.wait();
  float ms = 0;
  check(runtime_.EventElapsedTime(&ms, static_cast<CudaEvent&>(earlier).event_, event_),
        "measuring a time on GPU ", ordinal_);
  return ms / 1e3;
}

bool CudaEvent::reached() const {
  const cudaError_t result = runtime_.EventQuery(event_);
  if (result != cudaErrorNotReady) check(result, "asking how far GPU ", ordinal_, " has come");
  return result == cudaSuccess;
}

}  // namespace shoal::cuda
