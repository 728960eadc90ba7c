// Sums over the places of images in blocks of channels, one of each channel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shoal/ops/cpu/blocks.h"

namespace shoal::ops::cpu {

template <class Floats>
struct Two {
  Floats a, b;
};

// Sums over numbers of each channel of a block.
template <int kBlock>
struct BlockSums {
  typename BlockOf<kBlock>::Doubles plain{}, products{};
  void operator+=(const BlockSums& more) {
    plain += more.plain;
    products += more.products;
  }
};

// The sums of f(i) = {a, b} over the places at i = first, first + kBlock ...: of a, and of a b.
// Calls f once for each place.
template <int kBlock, class F>
BlockSums<kBlock> sums_of_places(std::int64_t first, std::int64_t numbers, const F& f) {
  using Floats = typename BlockOf<kBlock>::Floats;
  using Doubles = typename BlockOf<kBlock>::Doubles;
  constexpr std::int64_t kRun = 128 * kBlock;  // floats are added up, before they lose digits
  BlockSums<kBlock> total;
  for (std::int64_t run = first; run < first + numbers; run += kRun) {
    Floats plain[2]{}, products[2]{};
    const std::int64_t end = std::min(first + numbers, run + kRun);
    std::int64_t i = run;
    for (; i + 2 * kBlock <= end; i += 2 * kBlock)
      for (int half = 0; half < 2; ++half) {
        const auto [a, b] = f(i + half * kBlock);
        plain[half] += a;
        products[half] += a * b;
      }
    if (i < end) {
      const auto [a, b] = f(i);
      plain[0] += a;
      products[0] += a * b;
    }
    total.plain += __builtin_convertvector(plain[0] + plain[1], Doubles);
    total.products += __builtin_convertvector(products[0] + products[1], Doubles);
  }
  return total;
}

}  // namespace shoal::ops::cpu
