// Lends a row's numbers to the answers that are on their way: a link sends them without a copy, and
// they do not change meanwhile. A shard on one thread lends and updates; a loan may end on any
// thread.
#pragma once

#include <atomic>

#include "shoal/table/types.h"

namespace shoal::table {

class Buffer {
 public:
  explicit Buffer(std::size_t length) : Buffer(std::make_shared<float[]>(length), length) {}
  Buffer(std::shared_ptr<float[]> numbers, std::size_t length)
      : own_(std::move(numbers)), numbers_(own_.get(), length) {}
  // Holds numbers that are elsewhere, and outlive it.
  explicit Buffer(std::span<float> numbers) : numbers_(numbers) {}
  Buffer(const Buffer&) = delete;
  std::span<float> numbers() { return numbers_; }
  bool is_elsewhere() const { return own_ == nullptr; }
  // Returns whether a reader may still read the numbers. If not, all reads are finished.
  bool is_lent() const { return loans_.load(std::memory_order_acquire) != 0; }

  // Returns numbers that stay as they are, if the shard changes no lent buffer, until nothing holds
  // their owner.
  static Values lend(const std::shared_ptr<Buffer>& buffer) {
    buffer->loans_.fetch_add(1, std::memory_order_relaxed);
    const auto end = [buffer](const void*) {
      buffer->loans_.fetch_sub(1, std::memory_order_release);
    };
    return {buffer->numbers_, std::shared_ptr<const void>(buffer->numbers_.data(), end)};
  }

 private:
  const std::shared_ptr<float[]> own_;
  const std::span<float> numbers_;
  std::atomic<int> loans_ = 0;
};

// A few buffers that were given up while lent, to be taken again when they are not.
class Spares {
 public:
  // Returns a buffer of this length without a reader. Its contents are left over.
  std::shared_ptr<Buffer> take(std::size_t length) {
    for (std::size_t i = 0; i < spares_.size(); ++i) {
      if (spares_[i]->numbers().size() != length || spares_[i]->is_lent()) continue;
      std::shared_ptr<Buffer> found = std::move(spares_[i]);
      spares_.erase(spares_.begin() + i);
      return found;
    }
    return std::make_shared<Buffer>(length);
  }
  void give(std::shared_ptr<Buffer> buffer) {
    constexpr std::size_t kMost = 32;
    if (spares_.size() == kMost) spares_.erase(spares_.begin());
    spares_.push_back(std::move(buffer));
  }
  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const auto& spare : spares_) bytes += spare->numbers().size_bytes();
    return bytes;
  }

 private:
  std::vector<std::shared_ptr<Buffer>> spares_;  // oldest first
};

}  // namespace shoal::table
