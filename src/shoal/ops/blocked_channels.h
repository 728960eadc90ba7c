// The layout in which the CPU's kernels keep images from one convolution to the next: blocks of
// channels, so that one vector instruction works on the channels of one place.
#pragma once

#include <bit>
#include <cstdint>

#include "shoal/tensor/layout.h"

namespace shoal::ops {

// The type of the numbers in memory; arithmetic is in float32.
enum class NumberType { kFloat32, kBfloat16 };

// The upper half of a float32.
struct Bfloat16 {
  std::uint16_t bits;
};

inline float value(float x) { return x; }
inline float value(Bfloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

// Rounds to the nearest, ties to even; a NaN stays one.
template <class N>
N number(float x);
template <>
inline float number<float>(float x) {
  return x;
}
template <>
inline Bfloat16 number<Bfloat16>(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>((is_nan ? bits | 0x400000u : rounded) >> 16)};
}

// Numbers that are (N, C, S) in plain order are kept as (N, ceil(C / B), S, B), whatever the
// tensor's axes are. The channels that fill up the last block are zeros. B = 1 is the plain order,
// of 16 bits.
class BlockedChannels final : public Layout {
 public:
  // `block` is B, which is 8, 16 or 1.
  BlockedChannels(std::int64_t channels, std::int64_t inner, int block,
                  NumberType type = NumberType::kFloat32);

  bool equals(const Layout& other) const override;
  std::size_t bytes(const Shape& shape) const override;
  void pack(const Shape& shape, const float* plain, std::byte* packed) const override;
  void unpack(const Shape& shape, const std::byte* packed, float* plain) const override;
  bool depends_on_shape() const override { return false; }
  LayoutPtr like(const Shape& shape) const override;

  std::int64_t blocks() const { return (channels + block - 1) / block; }
  bool is_padded() const { return channels % block != 0; }

  const std::int64_t channels, inner;  // C and S
  const int block;
  const NumberType type;
};

// Returns the layout, or null where that is the plain one: float32, and one place in each image or
// one block's worth of channels each alone in order.
LayoutPtr blocked_channels(std::int64_t channels, std::int64_t inner, int block,
                           NumberType type = NumberType::kFloat32);

// Returns the layout as what it is; null if the numbers lie in another, or in plain order.
const BlockedChannels* as_blocked(const LayoutPtr& layout);
// Returns the type of the numbers in this layout.
NumberType number_type(const LayoutPtr& layout);
inline std::int64_t size_of(NumberType type) {
  return type == NumberType::kFloat32 ? sizeof(float) : sizeof(Bfloat16);
}
// Returns the same, and null unless the numbers are (N, channels, inner).
const BlockedChannels* as_blocked(const LayoutPtr& layout, std::int64_t channels,
                                  std::int64_t inner);

}  // namespace shoal::ops
