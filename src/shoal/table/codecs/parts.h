// The parts that codecs share: numbers in unaligned bytes, words for damage.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "shoal/table/codecs/kinds.h"

namespace shoal::table::codecs {

// Reads or writes a little-endian number at an address that may be unaligned; as all of Shoal, for
// machines that are little-endian.
template <class Number>
Number load(const std::byte* at) {
  Number number;
  std::memcpy(&number, at, sizeof(Number));
  return number;
}
template <class Number>
void store(std::byte* at, Number number) {
  std::memcpy(at, &number, sizeof(Number));
}

constexpr std::size_t divided_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

inline std::uint32_t bits_of(float number) { return std::bit_cast<std::uint32_t>(number); }
// Returns the bits of the number's magnitude, which are in the order of the magnitudes.
inline std::uint32_t magnitude_bits(float number) { return bits_of(number) & 0x7fffffffu; }
inline bool is_finite(float number) { return magnitude_bits(number) < 0x7f800000u; }
// Returns whether the number may be a size: finite, and neither negative nor -0.
inline bool is_size(float number) { return bits_of(number) < 0x7f800000u; }

// Returns the bits of the greatest magnitude; 0 if there are no numbers.
inline std::uint32_t greatest_bits(const float* numbers, std::size_t n) {
  std::uint32_t greatest = 0;
  for (std::size_t i = 0; i < n; ++i) greatest = std::max(greatest, magnitude_bits(numbers[i]));
  return greatest;
}

// Returns whether so many bytes are all zero.
inline bool all_zero(const std::byte* at, std::size_t bytes) {
  return std::all_of(at, at + bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// The errors of Codec::decode.
template <class... Words>
Error damage(const Words&... words) {
  return {Code::kPeer, str(words...)};
}
inline Error wrong_length(const Payload& payload, std::size_t count, const char* codec,
                          std::size_t wanted) {
  return damage("has ", payload.bytes.size(), " bytes; the ", count, " numbers of the row take ",
                wanted, " in codec ", codec);
}
inline Error not_finite(std::size_t index) {
  return damage("has number ", index, " that is infinite or not a number");
}
inline Error not_a_size(const char* what, float size) {
  return damage("has the ", what, " ", size, ", which is not finite or is negative");
}

}  // namespace shoal::table::codecs
