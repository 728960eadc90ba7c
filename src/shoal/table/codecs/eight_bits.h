// Numbers of 8 bits: whole multiples, -127 to 127, of a scale that several numbers share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {

inline constexpr int kMostCode = 127;
// The greatest scale: 127 times as much is below the greatest float32.
inline constexpr float kMostScale = 0x1.0204p121f;

// Returns the scale for these numbers; 0 if all are zero, or too small for a scale.
inline float scale_of(std::span<const float> numbers) {
  const float greatest = std::bit_cast<float>(greatest_bits(numbers.data(), numbers.size()));
  return std::min(greatest / static_cast<float>(kMostCode), kMostScale);
}

// Writes the codes of the numbers, rounded to the nearest, ties to even.
inline void to_codes(std::span<const float> numbers, float scale, std::byte* codes) {
  if (scale == 0) {
    std::fill_n(codes, numbers.size(), std::byte{0});
    return;
  }
  // From 1.5 * 2^23 on, the last place of a float is 1: adding this rounds, and the whole number
  // stands in the lower bits.
  constexpr float kWhole = 0x1.8p23f;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const int code = static_cast<int>(bits_of(numbers[i] / scale + kWhole) - bits_of(kWhole));
    codes[i] = static_cast<std::byte>(std::clamp(code, -kMostCode, kMostCode));
  }
}

inline bool is_scale(float scale) { return is_size(scale) && scale <= kMostScale; }
// Returns whether one of so many codes is -128, which no encoder writes.
inline bool has_unused_code(const std::byte* codes, std::size_t n) {
  std::uint8_t found = 0;
  for (std::size_t i = 0; i < n; ++i) found |= codes[i] == std::byte{0x80} ? 1 : 0;
  return found != 0;
}
// Writes the numbers that the codes mean.
inline void from_codes(const std::byte* codes, float scale, std::span<float> numbers) {
  float* const out = numbers.data();
  for (std::size_t i = 0; i < numbers.size(); ++i)
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(codes[i]));
}

}  // namespace shoal::table::codecs
