// Reads records in the order of a sequence: the part of items that does not look into them.
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <string>

#include "shoal/base/random.h"
#include "shoal/data/item_source.h"
#include "shoal/data/record.h"
#include "shoal/data/sequence.h"
#include "shoal/data/transform.h"

namespace shoal {

// Returns a generator of an item's own numbers, made of its random words.
Random generator_of(const std::array<std::uint32_t, 4>& words);

// Gives the sample its size and its numbers, or bytes if the batch wants such.
Status put_pixels(const Transform& transform, const Pixels& pixels,
                  const std::array<std::uint32_t, 4>& random, Sample& sample);

// Records that are Datums; a subclass may know others.
class RecordItems : public ItemSource {
 public:
  RecordItems(std::unique_ptr<RecordSource> source, const SequenceOptions& sequence,
              Transform transform, int batch_size);
  Status start();
  const std::string& path() const final { return source_->path(); }
  Status read(Item& item) final;
  Result<ItemKind> kind(const Item& item) const override;
  Status make(const Item& item, Sample& sample) const override;
  void make_numbers(const Sample& in_bytes, std::span<float> numbers) const final;

 protected:
  const Transform& transform() const { return transform_; }
  std::array<std::uint32_t, 4> random(std::uint64_t n) const { return sequence_.random(n); }

 private:
  static constexpr std::uint64_t kNowhere = std::numeric_limits<std::uint64_t>::max();
  std::unique_ptr<RecordSource> source_;
  Sequence sequence_;
  Transform transform_;
  int batch_size_;
  bool leaps() const { return sequence_.shuffles() || sequence_.step() > 1; }
  std::uint64_t count_ = 0;        // known if it leaps
  std::uint64_t next_ = kNowhere;  // the position that the source's cursor stands for
  std::uint64_t in_set_ = 0;       // records read since the set last started at its first one
  bool whole_ = false;             // in_set_ counts from there
  bool warned_ = false;
};

}  // namespace shoal
