// The records that a data layer reads, one by one: in bytes, then decoded.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "shoal/base/error.h"
#include "shoal/data/batch.h"
#include "shoal/data/image.h"

namespace shoal {

// A record on its way. Reused, so that its strings keep their memory.
struct Item {
  std::uint64_t n = 0;      // of all records that the net reads, from 0
  std::string name;         // key, or path and line: for error messages
  std::string bytes;        // a serialised Datum, or nothing for a listed image
  std::uint64_t index = 0;  // of a listed image, in its list
};

// The size and kind of a record, known once it was decoded.
struct ItemKind {
  ImageSize size;        // of what make writes
  bool picture = false;  // JPEG or the like, not plain pixels
  bool bytes = false;    // each pixel is a byte
};

// The records that a data layer reads. read is called on one thread at a time, make on several at
// once.
class ItemSource {
 public:
  virtual ~ItemSource() = default;
  virtual const std::string& path() const = 0;
  // Fills the item of item.n; n mostly rises by one from call to call. An error here ends the run:
  // the source itself is broken.
  virtual Status read(Item& item) = 0;
  // Decodes `item` to find its size and kind. Errors as for make.
  virtual Result<ItemKind> kind(const Item& item) const = 0;
  // Writes the sample's size (resize), numbers and label. An error is a bad record, and its words
  // follow "the record K of S ".
  virtual Status make(const Item& item, Sample& sample) const = 0;
  // Writes the numbers that make would have written of a sample in bytes, if it wanted none. Is
  // asked only if make writes bytes.
  virtual void make_numbers(const Sample& in_bytes, std::span<float> numbers) const;
};

enum class OnBadRecord {
  kStop,     // the batch is an error
  kSkip,     // the record is left out; those after it move up
  kReplace,  // the next good record is used here too
};

// Returns the error of a record whose size is not that of its batch, with what mends it.
Error misfit(const ImageSize& size, const ImageSize& wanted);
// Returns the kind of item n, or of the first good one after it unless `on_bad` is kStop. Layers
// that must know their shapes before they start call it.
Result<ItemKind> probe(ItemSource& source, std::uint64_t n, OnBadRecord on_bad);

// The set is bad, not a record, after so many bad records in a row.
inline constexpr std::uint64_t kBadInARow = 1000;
// "the record K of S ", and why.
Error bad_record(const ItemSource& source, const Item& item, const Error& why);

}  // namespace shoal
