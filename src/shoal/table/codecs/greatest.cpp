// Counts the magnitudes by the upper 11 bits of their float32: the exponent and three bits behind
// it. The bin in which the count from above comes to k holds the threshold. Only numbers of that
// bin are compared more closely.
#include "shoal/table/codecs/greatest.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <functional>

#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {
namespace {

constexpr int kBinShift = 20;  // from a magnitude's bits to its bin
constexpr std::uint32_t kBelowBin = (1u << kBinShift) - 1;

struct Bin {
  std::uint32_t index = 0;
  std::size_t above = 0, inside = 0;  // numbers in greater bins; in this one
};

// Returns the bin of the k-th greatest.
Bin find_bin(std::span<const float> numbers, std::size_t k, GreatestScratch& scratch) {
  std::fill_n(scratch.even, GreatestScratch::kBins, std::uint16_t{0});
  std::fill_n(scratch.odd, GreatestScratch::kBins, std::uint16_t{0});
  // Neighbours are often of one bin; in two arrays their counts do not wait for each other.
  std::size_t i = 0;
  for (; i + 2 <= numbers.size(); i += 2) {
    ++scratch.even[magnitude_bits(numbers[i]) >> kBinShift];
    ++scratch.odd[magnitude_bits(numbers[i + 1]) >> kBinShift];
  }
  if (i < numbers.size()) ++scratch.even[magnitude_bits(numbers[i]) >> kBinShift];
  Bin bin{.index = greatest_bits(numbers.data(), numbers.size()) >> kBinShift};
  for (;; --bin.index) {
    bin.inside = std::size_t{scratch.even[bin.index]} + scratch.odd[bin.index];
    if (bin.above + bin.inside >= k || bin.index == 0) return bin;
    bin.above += bin.inside;
  }
}

// Writes the places of the magnitudes whose bits are at least `edge`. Returns their number.
std::size_t collect(std::span<const float> numbers, std::uint32_t edge, std::uint16_t* places) {
  std::size_t count = 0, i = 0;
#if defined(__AVX2__)
  const __m256i without_sign = _mm256_set1_epi32(0x7fffffff),
                below = _mm256_set1_epi32(static_cast<int>(edge) - 1);
  const auto marks = [&](std::size_t at) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(&numbers[at]));
    const __m256i hits = _mm256_cmpgt_epi32(_mm256_and_si256(bits, without_sign), below);
    return static_cast<std::uint64_t>(
        static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(hits))));
  };
  for (; i + 32 <= numbers.size(); i += 32) {
    std::uint64_t hits = marks(i) | marks(i + 8) << 8 | marks(i + 16) << 16 | marks(i + 24) << 24;
    for (; hits != 0; hits &= hits - 1)
      places[count++] =
          static_cast<std::uint16_t>(i + static_cast<std::size_t>(std::countr_zero(hits)));
  }
#endif
  for (; i < numbers.size(); ++i)
    if (magnitude_bits(numbers[i]) >= edge) places[count++] = static_cast<std::uint16_t>(i);
  return count;
}

}  // namespace

void find_greatest(std::span<const float> numbers, std::size_t k, std::uint16_t* places,
                   GreatestScratch& scratch) {
  const Bin bin = find_bin(numbers, k, scratch);
  const std::uint32_t edge = bin.index << kBinShift;
  const std::size_t wanted = k - bin.above;  // of the bin
  if (wanted == bin.inside) {
    collect(numbers, edge, places);
    return;
  }
  const std::size_t count = collect(numbers, edge, scratch.places);
  // A key is greater for a greater magnitude, and for a lower place; no two are equal.
  const auto key_of = [&](std::size_t place) {
    const std::uint32_t bits = magnitude_bits(numbers[place]);
    return (bits & kBelowBin) << 12 | static_cast<std::uint32_t>(kChunk - 1 - place);
  };
  const auto is_inside = [&](std::size_t place) {
    return magnitude_bits(numbers[place]) >> kBinShift == bin.index;
  };
  // A processor cannot foresee which numbers are in the bin, so these loops have no branch on it.
  std::size_t inside = 0;
  for (std::size_t i = 0; i < count; ++i) {
    scratch.keys[inside] = key_of(scratch.places[i]);
    inside += is_inside(scratch.places[i]) ? 1 : 0;
  }
  const auto [least, most] = std::minmax_element(scratch.keys, scratch.keys + inside);
  std::uint32_t* const last = scratch.keys + wanted - 1;
  // Equal magnitudes, such as zeros, are in the order of their keys already.
  if (*least >> 12 != *most >> 12)
    std::nth_element(scratch.keys, last, scratch.keys + inside, std::greater{});
  const std::uint32_t least_key = *last;
  for (std::size_t i = 0, written = 0; written < k; ++i) {
    const std::size_t place = scratch.places[i];
    places[written] = static_cast<std::uint16_t>(place);
    written += static_cast<std::size_t>(!is_inside(place)) | (key_of(place) >= least_key ? 1 : 0);
  }
}

}  // namespace shoal::table::codecs
