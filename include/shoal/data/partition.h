// Decides to which part of a divided set a record goes. Pure: counts, labels and shares decide
// alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/part_bounds.h"

namespace shoal {

// Divides by the text of a data_sharding file: line k + 1 is "begin end" of part k, in fractions of
// the set. `name` is the file's. Errors (kUsage) with file and line: no two numbers, an end before
// its begin, a range that overlaps the one before or leaves out a record before it, a first that
// does not begin at 0, a last that does not end at 1. All to within one record; part k begins at
// record floor(begin * count), whatever the end before it rounds to.
Result<PartBounds> bounds_by_sharding(std::string_view text, const std::string& name,
                                      std::uint64_t count);

class Partition {
 public:
  // Record i goes to part i mod `parts`.
  static Partition round_robin(std::size_t parts);
  static Partition blocks(PartBounds bounds);
  // Divides the records, ordered by label and then by place, into blocks.
  static Partition by_class(const PartBounds& bounds, std::span<const int> labels);

  std::size_t parts() const { return parts_; }
  std::size_t of(std::uint64_t record) const;

 private:
  explicit Partition(std::size_t parts) : parts_(parts) {}
  std::size_t parts_;
  PartBounds bounds_;                  // of blocks, or empty
  std::vector<std::uint32_t> chosen_;  // by_class: the part of each record, or empty
};

}  // namespace shoal
