// Implements the copies of batches that run ahead of a net.
#include "shoal/data/batch_copies.h"

#include <utility>

namespace shoal {
namespace {

PrefetchOptions holding(PrefetchOptions options) {
  options.held = options.form == PixelForm::kBytes ? BatchCopies::kAhead + 1 : 1;
  return options;
}

}  // namespace

BatchCopies::BatchCopies(ItemSource& source, const PrefetchOptions& options)
    : form_(options.form), device_(*options.device), prefetch_(source, holding(options)) {
  if (form_ == PixelForm::kNumbers) return;
  for (Place& place : places_) {
    place.copied = device_.make_event(/*timed=*/false);
    place.used = device_.make_event(/*timed=*/false);
  }
  stream_ = device_.make_stream();
}

Result<BatchCopies::Taken> BatchCopies::next(Stream& stream) {
  if (form_ == PixelForm::kNumbers) {
    const Result<const Batch*> batch = prefetch_.next();
    return batch.ok() ? Result<Taken>({batch.value(), nullptr}) : batch.error();
  }
  if (used_ > 0) place(used_ - 1).used->record(stream);
  if (ahead_.empty()) take();
  const Result<const Batch*> batch = std::move(ahead_.front());
  ahead_.pop_front();
  Place& own = place(used_++);
  while (batch.ok() && ahead() < kAhead && prefetch_.ready()) take();
  if (!batch.ok()) return batch.error();
  if (!batch.value()->in_bytes()) return Taken{batch.value(), nullptr};
  own.copied->hold(stream);
  return Taken{batch.value(), own.memory};
}

// Gives the prefetch back the batch that was copied to this place before.
void BatchCopies::take() {
  Place& to = place(taken_++);
  to.copied->wait();
  ahead_.push_back(prefetch_.next());
  if (ahead_.back().ok() && ahead_.back().value()->in_bytes()) copy(*ahead_.back().value(), to);
}

void BatchCopies::copy(const Batch& batch, Place& place) {
  const std::size_t bytes = batch.images().bytes();
  if (!place.memory || place.memory->bytes() < bytes) place.memory = device_.allocate(bytes);
  place.used->hold(*stream_);
  stream_->upload(place.memory->data(), batch.block()->data(), bytes);
  place.copied->record(*stream_);
}

}  // namespace shoal
