// Sums and copies between the devices of the nets that train together in one process.
#pragma once

#include <memory>
#include <span>

#include "shoal/ops/op.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// Sums over some contexts, numbered from 0, each of a device of its own. A slot is some tensors, as
// many and as long on each device, that are summed or copied together; slots are worked on in the
// order of start(), on streams of their own, beside what the contexts compute. All may throw
// DeviceError.
class DeviceSums {
 public:
  enum class Use {
    kSum,   // those of context 0 become the sum of all; the others must stay until take()
    kCopy,  // those of the others become those of context 0
  };
  virtual ~DeviceSums() = default;
  // Throws if a device has failed. The sums of all were ended then: what they made is not to be
  // used, and the other functions throw, too. Any thread.
  virtual void throw_if_failed() = 0;
  // The slot begins when what is queued on this context now has been done. On the context's thread.
  // The tensors, in plain order or in one that all contexts had them in the last time, stay where
  // they are until take().
  virtual void offer(int context, int slot, Use use, std::span<Tensor* const> tensors) = 0;
  // Queues the slot, which all contexts have offered for one use. On one thread, as done().
  virtual void start(int slot) = 0;
  // Returns whether context 0's part of the slot has been done. Does not wait.
  virtual bool done(int slot) = 0;
  // Makes all that the context queues from now on come after the slot, which was started. Runs on
  // the context's thread, or on another while that one queues nothing.
  virtual void take(int context, int slot) = 0;
};

// Borrows the contexts. Null if their devices cannot do this, and `why` says so.
std::unique_ptr<DeviceSums> make_device_sums(std::span<Context* const> contexts, int slots,
                                             Why& why);

}  // namespace shoal::ops
