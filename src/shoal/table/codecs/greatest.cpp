// Counts the magnitudes by the upper 11 bits of their float32: the exponent and three bits behind
// it. The bin in which the count from above comes to k holds the threshold. Only numbers of that
// bin are compared more closely.
#include "shoal/table/codecs/greatest.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
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
  // Most bins above are empty: blocks of them are passed at once.
  constexpr std::uint32_t kBlock = 64;
  Bin bin{.index = GreatestScratch::kBins};
  for (;;) {
    std::uint32_t count = 0;
    for (std::uint32_t b = bin.index - kBlock; b < bin.index; ++b)
      count += std::uint32_t{scratch.even[b]} + scratch.odd[b];
    if (bin.above + count >= k) break;
    bin.above += count;
    bin.index -= kBlock;
  }
  for (;;) {
    --bin.index;
    bin.inside = std::size_t{scratch.even[bin.index]} + scratch.odd[bin.index];
    if (bin.above + bin.inside >= k) return bin;
    bin.above += bin.inside;
  }
}

// Holds, for each byte of eight marks, the places of the marks that are set.
constexpr auto kPlacesOfMarks = [] {
  std::array<std::array<std::uint8_t, 8>, 256> all{};
  for (unsigned marks = 0; marks < 256; ++marks)
    for (unsigned place = 0, count = 0; place < 8; ++place)
      if ((marks >> place & 1) != 0) all[marks][count++] = static_cast<std::uint8_t>(place);
  return all;
}();

// Writes the places of the magnitudes whose bits are at least `edge`, and something behind them, of
// numbers.size() in all. Returns their number.
std::size_t collect(std::span<const float> numbers, std::uint32_t edge, std::uint16_t* places) {
  std::size_t count = 0, i = 0;
#if defined(__AVX2__)
  const __m256i without_sign = _mm256_set1_epi32(0x7fffffff),
                below = _mm256_set1_epi32(static_cast<int>(edge) - 1);
  const auto marks_at = [&](std::size_t at) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(&numbers[at]));
    const __m256i hits = _mm256_cmpgt_epi32(_mm256_and_si256(bits, without_sign), below);
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(hits)));
  };
  // Up to so many are written one by one, since a processor foresees that most often there are
  // none.
  constexpr int kFew = 2;
  for (; i + 32 <= numbers.size(); i += 32) {
    std::uint32_t marks =
        marks_at(i) | marks_at(i + 8) << 8 | marks_at(i + 16) << 16 | marks_at(i + 24) << 24;
    if (std::popcount(marks) <= kFew) {
      for (; marks != 0; marks &= marks - 1)
        places[count++] =
            static_cast<std::uint16_t>(i + static_cast<std::size_t>(std::countr_zero(marks)));
      continue;
    }
    for (std::size_t at = i; at < i + 32; at += 8, marks >>= 8) {
      const auto& inside = kPlacesOfMarks[marks & 0xff];
      const __m128i from_here =
          _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(inside.data())));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(places + count),
                       _mm_add_epi16(from_here, _mm_set1_epi16(static_cast<short>(at))));
      count += static_cast<std::size_t>(std::popcount(marks & 0xff));
    }
  }
#endif
  for (; i < numbers.size(); ++i) {
    places[count] = static_cast<std::uint16_t>(i);
    count += magnitude_bits(numbers[i]) >= edge ? 1 : 0;
  }
  return count;
}

// Names the key of the last place that is wanted. `ties`: how many places of this key are.
struct Last {
  std::uint32_t key = 0;
  std::size_t ties = 0;
};

// Returns that of the `wanted` greatest keys. Counts them by their upper five bits first, so that
// few are left to compare. Overwrites the keys.
Last select(std::span<std::uint32_t> keys, std::size_t wanted) {
  constexpr int kShift = kBinShift - 5;
  std::uint16_t counts[32] = {};
  for (const std::uint32_t key : keys) ++counts[key >> kShift];
  std::uint32_t part = 31;
  for (; wanted > counts[part]; --part) wanted -= counts[part];
  std::size_t inside = 0;
  for (const std::uint32_t key : keys) {
    keys[inside] = key;
    inside += key >> kShift == part ? 1 : 0;
  }
  const auto end = keys.begin() + static_cast<std::ptrdiff_t>(inside),
             last = keys.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
  const auto [least, most] = std::minmax_element(keys.begin(), end);
  // Equal magnitudes, such as zeros, are in order.
  if (*least != *most) std::nth_element(keys.begin(), last, end, std::greater{});
  const std::uint32_t key = *last;
  return {key, static_cast<std::size_t>(std::count(keys.begin(), last + 1, key))};
}

}  // namespace

void find_greatest(std::span<const float> numbers, std::size_t k, std::uint16_t* places,
                   GreatestScratch& scratch) {
  const Bin bin = find_bin(numbers, k, scratch);
  const std::size_t count = collect(numbers, bin.index << kBinShift, scratch.places);
  const std::size_t wanted = k - bin.above;  // of the bin
  if (wanted == bin.inside) {
    std::copy_n(scratch.places, k, places);
    return;
  }
  // A processor cannot foresee which numbers are in the bin, so these loops have no branch on it.
  std::size_t inside = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = magnitude_bits(numbers[scratch.places[i]]);
    scratch.keys[inside] = bits & kBelowBin;
    inside += bits >> kBinShift == bin.index ? 1 : 0;
  }
  const auto [key, ties] = select({scratch.keys, inside}, wanted);
  const std::uint32_t edge = bin.index << kBinShift | key;
  std::size_t at_edge = 0, written = 0;
  for (std::size_t i = 0; written < k; ++i) {
    const std::uint32_t bits = magnitude_bits(numbers[scratch.places[i]]);
    places[written] = scratch.places[i];
    const bool is_tie = bits == edge;
    written += (bits > edge || (is_tie && at_edge < ties)) ? 1 : 0;
    at_edge += is_tie ? 1 : 0;
  }
}

}  // namespace shoal::table::codecs
