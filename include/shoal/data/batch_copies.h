// Copies batches of bytes to a device ahead of their use, beside what the device computes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>

#include "shoal/data/prefetch.h"
#include "shoal/tensor/device.h"

namespace shoal {

// Takes batches from a prefetch. Batches of numbers are handed on as they are. While one batch of
// bytes is used the next kAhead, as far as they are made, are copied on a stream of their own:
//   copied[k]  noted on the copying stream; the stream that uses batch k waits for it, and the
//              host does before the prefetch may write over the batch
//   used[k]    noted on the stream that uses it when batch k + 1 is taken; the copying stream waits
//              for it before it copies batch k + kAhead + 1 to the same place
// One thread at a time.
class BatchCopies {
 public:
  static constexpr int kAhead = 2;
  // Takes Prefetch's arguments; of the options `held` is set here.
  BatchCopies(ItemSource& source, const PrefetchOptions& options);
  BatchCopies(const BatchCopies&) = delete;

  struct Taken {
    const Batch* batch = nullptr;
    std::shared_ptr<Memory> block;  // a copy of batch->block() on the device; null: in numbers
  };
  // Returns the next batch, the caller's until the next call. What is queued on `stream`, always
  // the same one, from now until then may use the block. Errors as of Prefetch::next, in turn. May
  // throw DeviceError.
  Result<Taken> next(Stream& stream);
  // Batches that were taken from the prefetch and not yet by the caller.
  int ahead() const { return static_cast<int>(ahead_.size()); }
  double seconds_waited() const { return prefetch_.seconds_waited(); }

 private:
  struct Place {  // where every (kAhead + 1)-th batch is copied to
    std::shared_ptr<Memory> memory;
    std::unique_ptr<Event> copied, used;
  };
  Place& place(std::uint64_t batch) { return places_[batch % places_.size()]; }
  void take();
  void copy(const Batch& batch, Place& place);

  const PixelForm form_;
  const Device& device_;
  Prefetch prefetch_;
  std::array<Place, kAhead + 1> places_;
  std::deque<Result<const Batch*>> ahead_;
  std::uint64_t taken_ = 0, used_ = 0;  // batches: from the prefetch, by the caller
  std::shared_ptr<Stream> stream_;      // of the copies; first of these to go, when all are done
};

}  // namespace shoal
