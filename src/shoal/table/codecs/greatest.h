// Finds the greatest of some numbers without sorting them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal::table::codecs {

inline constexpr std::size_t kChunk = 4096;  // numbers of which top-k is told apart

// Memory for find_greatest, which needs no contents.
struct GreatestScratch {
  static constexpr std::size_t kBins = 2048;
  std::uint16_t even[kBins], odd[kBins];  // counts of magnitudes by their upper bits
  std::uint16_t places[kChunk];
  std::uint32_t keys[kChunk];
};

// Writes the places of the k greatest magnitudes of at most kChunk finite numbers, in rising order;
// of equal ones the lower places count as greater. k <= numbers.size().
void find_greatest(std::span<const float> numbers, std::size_t k, std::uint16_t* places,
                   GreatestScratch& scratch);

}  // namespace shoal::table::codecs
