// Keeps the numbers of a batch's records in one block of memory.
#include "shoal/data/batch.h"

#include <algorithm>

namespace shoal {
namespace {

std::span<float> part_of(const Memory& memory, std::size_t index, std::size_t count) {
  return {reinterpret_cast<float*>(memory.data()) + index * count, count};
}

}  // namespace

std::span<float> Sample::resize(const ImageSize& size) {
  size_ = size;
  data_ = batch_ ? batch_->place_for(place_, size) : std::span<float>();
  if (data_.empty()) {
    own_.resize(static_cast<std::size_t>(size.count()));
    data_ = own_;
  }
  return data_;
}

void Sample::copy_from(const Sample& other) {
  label = other.label;
  name = other.name;
  std::ranges::copy(other.data_, resize(other.size_).begin());
}

Batch::Batch(std::size_t records, const Device& device)
    : samples(records), device_(device), labels_(device.allocate_on_host(records * sizeof(float))) {
  for (std::size_t i = 0; i < records; ++i) {
    samples[i].batch_ = this;
    samples[i].place_ = i;
  }
}

std::size_t Batch::bytes_of(const ImageSize& size) const {
  return samples.size() * static_cast<std::size_t>(size.count()) * sizeof(float);
}

void Batch::open(std::size_t least) {
  least_ = least;
  sized_.store(false, std::memory_order_relaxed);
}

// Any number of threads may ask at once.
std::span<float> Batch::place_for(std::size_t record, const ImageSize& size) {
  if (!sized_.load(std::memory_order_acquire)) {
    MutexLock lock(mutex_);
    if (!sized_.load(std::memory_order_relaxed)) {
      size_ = size;
      const std::size_t bytes = std::max(least_, bytes_of(size));
      if (!numbers_ || numbers_->bytes() < bytes) numbers_ = device_.allocate_on_host(bytes);
      sized_.store(true, std::memory_order_release);
    }
  }
  if (size != size_) return {};
  return part_of(*numbers_, record, static_cast<std::size_t>(size.count()));
}

void Batch::close(std::size_t least) {
  const std::size_t bytes = std::max(least, bytes_of(size()));
  const std::shared_ptr<Memory> numbers =
      numbers_ && numbers_->bytes() >= bytes ? numbers_ : device_.allocate_on_host(bytes);
  const std::span<float> labels = part_of(*labels_, 0, samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    Sample& sample = samples[i];
    const std::span<float> place = part_of(*numbers, i, sample.data_.size());
    if (place.data() != sample.data_.data()) std::ranges::copy(sample.data_, place.begin());
    sample.data_ = place;
    sample.own_ = {};
    labels[i] = sample.label;
  }
  numbers_ = numbers;
  size_ = size();
}

}  // namespace shoal
