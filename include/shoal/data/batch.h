// A batch of records, decoded: their numbers, or their bytes, lie one record after the other, so
// that a net can use them where they are.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/mutex.h"
#include "shoal/data/image.h"
#include "shoal/tensor/byte_images.h"
#include "shoal/tensor/tensor.h"

namespace shoal {

class Batch;

// Says how far the threads that decode a record bring it.
enum class PixelForm {
  kNumbers,  // it is transformed: numbers
  kBytes,    // it is cut: bytes, if the record has bytes; the rest is a device's work
};

// One record, decoded. Reused, so that its memory is kept.
class Sample {
 public:
  float label = 0;
  std::string name;  // "K"
  // True boxes in the picture: group_label, instance_id, xmin, ymin, xmax, ymax, difficult.
  std::vector<std::array<float, 7>> boxes;
  // The label of each pixel of size(), row by row, and how many rows and columns are the picture's,
  // not padding.
  std::vector<std::uint8_t> pixel_labels;
  int rows = 0, columns = 0;

  const ImageSize& size() const { return size_; }
  bool in_bytes() const { return in_bytes_; }
  std::span<const float> data() const;          // size().count() numbers, unless in_bytes()
  std::span<const std::uint8_t> bytes() const;  // size().count(), if in_bytes()
  const ImageCrop& crop() const { return crop_; }
  // Returns whether the batch wants bytes of records that have them.
  bool wants_bytes() const;
  // Gives the record its size. Returns where its numbers go; they are not cleared.
  std::span<float> resize(const ImageSize& size);
  // Does the same for bytes; `crop` says how they are to be read.
  std::span<std::uint8_t> resize(const ImageSize& size, const ImageCrop& crop);
  // Becomes a copy of `other`; its place in the batch stays.
  void copy_from(const Sample& other);

 private:
  friend class Batch;
  void place(const ImageSize& size, bool in_bytes);
  Batch* batch_ = nullptr;  // null: the numbers are in own_
  std::size_t place_ = 0;
  ImageSize size_;
  bool in_bytes_ = false;
  ImageCrop crop_;
  std::span<std::byte> data_;
  std::vector<float> own_;  // the memory of a record that does not fit into the batch
};

// The first record that is given its size says how much space each record has. Records of that size
// are written in their places; a record of another size, or of numbers in a batch of bytes, is kept
// aside until close().
class Batch {
 public:
  // Numbers and labels lie where streams of `device` copy fastest; it outlives the batch.
  explicit Batch(std::size_t records, const Device& device = cpu_device(),
                 PixelForm form = PixelForm::kNumbers);
  Batch(const Batch&) = delete;

  std::vector<Sample> samples;
  // The n after the last record used: a run resumed after this batch starts there.
  std::uint64_t end = 0;

  // These hold once the batch is closed.
  const ImageSize& size() const { return samples.front().size(); }
  bool in_bytes() const { return samples.front().in_bytes(); }
  // Returns the numbers of all records, and their labels, as floats; unless in_bytes().
  const std::shared_ptr<Memory>& numbers() const { return numbers_; }
  const std::shared_ptr<Memory>& labels() const { return labels_; }
  // Returns the same as bytes with what belongs to them, in one block; if in_bytes().
  ByteImages images() const;
  const std::shared_ptr<Memory>& block() const { return block_; }

  // Forgets the records. numbers() will hold `least` bytes at least.
  void open(std::size_t least);
  // Brings all records, which now have one size and one form, to their places. numbers() then
  // holds `least` bytes at least.
  void close(std::size_t least);
  // Returns the bytes of numbers() at the batch's size.
  std::size_t number_bytes() const { return sizeof(float) * records(size()); }

 private:
  friend class Sample;
  std::span<std::byte> place_for(std::size_t record, const ImageSize& size, bool in_bytes);
  std::size_t records(const ImageSize& size) const {  // numbers, or bytes, of all
    return samples.size() * static_cast<std::size_t>(size.count());
  }

  const Device& device_;
  const PixelForm form_;
  Mutex mutex_;
  std::size_t least_ = 0;
  std::atomic<bool> sized_ = false;  // size_ and the places stay as they are until close()
  ImageSize size_;                   // of the records that are in their places
  std::shared_ptr<Memory> numbers_, labels_, block_;
};

}  // namespace shoal
