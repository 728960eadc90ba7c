// Keeps the numbers or bytes of a batch's records in one block of memory.
#include "shoal/data/batch.h"

#include <algorithm>

#include "shoal/base/log.h"

namespace shoal {
namespace {

std::size_t length_of(const ImageSize& size, bool in_bytes) {
  return static_cast<std::size_t>(size.count()) * (in_bytes ? 1 : sizeof(float));
}

ByteImages byte_images(std::size_t records, const ImageSize& size) {
  return {static_cast<std::int64_t>(records), size.channels, size.height, size.width};
}

std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

std::span<const float> Sample::data() const { return floats(data_); }
std::span<const std::uint8_t> Sample::bytes() const {
  return {reinterpret_cast<const std::uint8_t*>(data_.data()), data_.size()};
}

bool Sample::wants_bytes() const { return batch_ != nullptr && batch_->form_ == PixelForm::kBytes; }

void Sample::place(const ImageSize& size, bool in_bytes) {
  size_ = size;
  in_bytes_ = in_bytes;
  data_ = batch_ ? batch_->place_for(place_, size, in_bytes) : std::span<std::byte>();
  if (!data_.empty()) return;
  const std::size_t length = length_of(size, in_bytes);
  own_.resize((length + sizeof(float) - 1) / sizeof(float));
  data_ = std::as_writable_bytes(std::span(own_)).first(length);
}

std::span<float> Sample::resize(const ImageSize& size) {
  place(size, false);
  return floats(data_);
}

std::span<std::uint8_t> Sample::resize(const ImageSize& size, const ImageCrop& crop) {
  place(size, true);
  crop_ = crop;
  return {reinterpret_cast<std::uint8_t*>(data_.data()), data_.size()};
}

void Sample::copy_from(const Sample& other) {
  label = other.label;
  name = other.name;
  boxes = other.boxes;
  pixel_labels = other.pixel_labels;
  rows = other.rows;
  columns = other.columns;
  crop_ = other.crop_;
  place(other.size_, other.in_bytes_);
  std::ranges::copy(other.data_, data_.begin());
}

Batch::Batch(std::size_t records, const Device& device, PixelForm form)
    : samples(records),
      device_(device),
      form_(form),
      labels_(device.allocate_on_host(records * sizeof(float))) {
  for (std::size_t i = 0; i < records; ++i) {
    samples[i].batch_ = this;
    samples[i].place_ = i;
  }
}

ByteImages Batch::images() const { return byte_images(samples.size(), size()); }

void Batch::open(std::size_t least) {
  least_ = least;
  sized_.store(false, std::memory_order_relaxed);
}

// Any number of threads may ask at once.
std::span<std::byte> Batch::place_for(std::size_t record, const ImageSize& size, bool in_bytes) {
  if (in_bytes != (form_ == PixelForm::kBytes)) return {};
  std::shared_ptr<Memory>& memory = in_bytes ? block_ : numbers_;
  if (!sized_.load(std::memory_order_acquire)) {
    MutexLock lock(mutex_);
    if (!sized_.load(std::memory_order_relaxed)) {
      size_ = size;
      const std::size_t bytes = in_bytes ? byte_images(samples.size(), size).bytes()
                                         : std::max(least_, sizeof(float) * records(size));
      if (!memory || memory->bytes() < bytes) memory = device_.allocate_on_host(bytes);
      sized_.store(true, std::memory_order_release);
    }
  }
  if (size != size_) return {};
  const std::size_t length = length_of(size, in_bytes);
  return {memory->data() + record * length, length};
}

void Batch::close(std::size_t least) {
  const bool bytes = in_bytes();
  CHECK(std::ranges::all_of(samples, [&](const Sample& s) { return s.in_bytes() == bytes; }));
  std::shared_ptr<Memory>& kept = bytes ? block_ : numbers_;
  const std::size_t wanted = bytes ? images().bytes() : std::max(least, number_bytes());
  const std::shared_ptr<Memory> memory =
      kept && kept->bytes() >= wanted ? kept : device_.allocate_on_host(wanted);
  std::byte* const labels_at = bytes ? memory->data() + images().labels_at() : labels_->data();
  const std::span<float> labels = floats({labels_at, samples.size() * sizeof(float)});
  std::byte* at = memory->data();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    Sample& sample = samples[i];
    if (at != sample.data_.data()) std::ranges::copy(sample.data_, at);
    sample.data_ = {at, sample.data_.size()};
    sample.own_ = {};
    at += sample.data_.size();
    labels[i] = sample.label;
  }
  auto* const crops = reinterpret_cast<ImageCrop*>(memory->data() + images().crops_at());
  for (std::size_t i = 0; bytes && i < samples.size(); ++i) crops[i] = samples[i].crop_;
  kept = memory;
  size_ = size();
}

}  // namespace shoal
