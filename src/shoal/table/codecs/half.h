// Numbers of 16 bits: IEEE 754 binary16. These functions do what the conversions of processors do
// with finite numbers, to the bit.
#pragma once

#include <bit>
#include <cstdint>

namespace shoal::table::codecs {

inline constexpr std::uint32_t kHalfInfinity = 0x7c00;

// Rounds to the nearest, ties to even; 65520 and more becomes infinity.
inline std::uint16_t to_half(float number) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(number), size = bits & 0x7fffffffu;
  // 0.5 has the last place that the small halves have, so the sum is rounded as they are.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (size + 0xfffu + (size >> 13 & 1) - 0x38000000u) >> 13;
  std::uint32_t half = size < 0x38800000u ? small : normal;
  if (size >= 0x47800000u || half > kHalfInfinity) half = kHalfInfinity;
  return static_cast<std::uint16_t>(half | (bits >> 16 & 0x8000u));
}

// Returns the number of a half that is finite.
inline float from_half(std::uint16_t half) {
  const std::uint32_t bits = half;
  const float size = std::bit_cast<float>((bits & 0x7fffu) << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) | (bits & 0x8000u) << 16);
}

}  // namespace shoal::table::codecs
