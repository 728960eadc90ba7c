// A batch of records, decoded and transformed: their numbers lie one record after the other, so
// that a net can use them where they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/mutex.h"
#include "shoal/data/image.h"
#include "shoal/tensor/tensor.h"

namespace shoal {

class Batch;

// One record, decoded and transformed. Reused, so that its memory is kept.
class Sample {
 public:
  float label = 0;
  std::string name;  // "K"

  const ImageSize& size() const { return size_; }
  std::span<const float> data() const { return data_; }  // size().count() numbers
  // Gives the record its size. Returns where its numbers go; they are not cleared.
  std::span<float> resize(const ImageSize& size);
  // Becomes a copy of `other`; its place in the batch stays.
  void copy_from(const Sample& other);

 private:
  friend class Batch;
  Batch* batch_ = nullptr;  // null: the numbers are in own_
  std::size_t place_ = 0;
  ImageSize size_;
  std::span<float> data_;
  std::vector<float> own_;  // the numbers of a record that does not fit into the batch
};

// The first record that is given its size says how much space each record has. Records of that size
// are written in their places; a record of another size is kept aside until close().
class Batch {
 public:
  // Numbers and labels lie where streams of `device` copy fastest; it outlives the batch.
  explicit Batch(std::size_t records, const Device& device = cpu_device());
  Batch(const Batch&) = delete;

  std::vector<Sample> samples;
  // the n after the last record used: where a run resumed after this batch starts
  std::uint64_t end = 0;

  // Once the batch is closed:
  const ImageSize& size() const { return samples.front().size(); }
  // The numbers of all records, and their labels, as floats.
  const std::shared_ptr<Memory>& numbers() const { return numbers_; }
  const std::shared_ptr<Memory>& labels() const { return labels_; }

  // Forgets the records. numbers() will hold `least` bytes at least.
  void open(std::size_t least);
  // Brings all records, which now have one size, to their places. numbers() then
  // holds `least` bytes at least.
  void close(std::size_t least);

 private:
  friend class Sample;
  std::span<float> place_for(std::size_t record, const ImageSize& size);
  std::size_t bytes_of(const ImageSize& size) const;

  const Device& device_;
  Mutex mutex_;
  std::size_t least_ = 0;
  std::atomic<bool> sized_ = false;  // size_ and numbers_ stay as they are until close()
  ImageSize size_;                   // of the records that are in their places
  std::shared_ptr<Memory> numbers_, labels_;
};

}  // namespace shoal
