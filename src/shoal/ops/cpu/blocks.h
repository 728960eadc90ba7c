// Vectors of the channels of one place, for kernels that work on images in blocks of channels
// (blocked_channels.h).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "shoal/ops/blocked_channels.h"
#include "shoal/tensor/tensor.h"

namespace shoal::ops::cpu {

template <int kBlock>
struct BlockOf;
template <>
struct BlockOf<8> {
  using Floats = float __attribute__((vector_size(32)));
  using Ints = std::int32_t __attribute__((vector_size(32)));
  using Words = std::uint32_t __attribute__((vector_size(32)));
  using Doubles = double __attribute__((vector_size(64)));
  using Halves = std::uint16_t __attribute__((vector_size(16)));
};
template <>
struct BlockOf<16> {
  using Floats = float __attribute__((vector_size(64)));
  using Ints = std::int32_t __attribute__((vector_size(64)));
  using Words = std::uint32_t __attribute__((vector_size(64)));
  using Doubles = double __attribute__((vector_size(128)));
  using Halves = std::uint16_t __attribute__((vector_size(32)));
};

// The channels of one place, as floats.
template <int kBlock>
typename BlockOf<kBlock>::Floats load_block(const float* from) {
  typename BlockOf<kBlock>::Floats block;
  std::memcpy(&block, from, sizeof block);
  return block;
}
template <int kBlock>
typename BlockOf<kBlock>::Floats load_block(const Bfloat16* from) {
  typename BlockOf<kBlock>::Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const auto words = __builtin_convertvector(halves, typename BlockOf<kBlock>::Words) << 16;
  return std::bit_cast<typename BlockOf<kBlock>::Floats>(words);
}
template <int kBlock>
void store_block(const typename BlockOf<kBlock>::Floats& block, float* to) {
  std::memcpy(to, &block, sizeof block);
}
// Rounds as number<Bfloat16>() does.
template <int kBlock>
void store_block(const typename BlockOf<kBlock>::Floats& block, Bfloat16* to) {
  using Words = typename BlockOf<kBlock>::Words;
  const Words bits = std::bit_cast<Words>(block);
  const auto is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const Words rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const Words chosen = (is_nan ? bits | 0x400000u : rounded) >> 16;
  const auto halves = __builtin_convertvector(chosen, typename BlockOf<kBlock>::Halves);
  std::memcpy(to, &halves, sizeof halves);
}

// Small whole numbers that are kept as bytes. (g++ 12 makes scalar code of __builtin_convertvector
// for these.)
template <int kBlock>
typename BlockOf<kBlock>::Ints load_bytes(const std::uint8_t* from) {
  std::int32_t wide[kBlock];
  for (int lane = 0; lane < kBlock; ++lane) wide[lane] = from[lane];
  typename BlockOf<kBlock>::Ints ints;
  std::memcpy(&ints, wide, sizeof ints);
  return ints;
}
template <int kBlock>
void store_bytes(const typename BlockOf<kBlock>::Ints& ints, std::uint8_t* to) {
  std::int32_t wide[kBlock];
  std::memcpy(wide, &ints, sizeof ints);
  for (int lane = 0; lane < kBlock; ++lane) to[lane] = static_cast<std::uint8_t>(wide[lane]);
}

// Calls work(std::integral_constant<int, B>(), N()) for the block and the type of the layout.
template <class Work>
void with_blocks(const BlockedChannels& layout, const Work& work) {
  constexpr std::integral_constant<int, 8> kNarrow{};
  constexpr std::integral_constant<int, 16> kWide{};
  const bool is_float = layout.type == NumberType::kFloat32;
  if (layout.block == 8) return is_float ? work(kNarrow, float()) : work(kNarrow, Bfloat16());
  return is_float ? work(kWide, float()) : work(kWide, Bfloat16());
}

template <class N>
const N* numbers(const std::byte* bytes) {
  return reinterpret_cast<const N*>(bytes);
}
template <class N>
N* numbers(std::byte* bytes) {
  return reinterpret_cast<N*>(bytes);
}

}  // namespace shoal::ops::cpu
