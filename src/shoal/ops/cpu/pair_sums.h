// Sums over two runs of numbers at once, by vectors: a plain loop over arrays of partial sums has a
// tenth of the speed with two such arrays (measured with g++ 12).
#pragma once

#include <cstdint>

#include "shoal/ops/cpu/lanes.h"

namespace shoal::ops::cpu {

inline double sum_of(const Lanes& lanes) {
  double sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += double{lanes[i]};
  return sum;
}

// The sums of a - a0 and of (a - a0) (b - b0) over runs of numbers.
struct PairSums {
  double plain = 0, products = 0;
  void add(const float* a, float a0, const float* b, float b0, std::int64_t n) {
    Lanes plain_even{}, plain_odd{}, products_even{}, products_odd{};
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      const Lanes a_even = load(a + i) - a0, a_odd = load(a + i + kLanes) - a0;
      const Lanes b_even = load(b + i) - b0, b_odd = load(b + i + kLanes) - b0;
      plain_even += a_even;
      plain_odd += a_odd;
      products_even += a_even * b_even;
      products_odd += a_odd * b_odd;
    }
    float plain_rest = 0, products_rest = 0;
    for (; i < n; ++i) {
      plain_rest += a[i] - a0;
      products_rest += (a[i] - a0) * (b[i] - b0);
    }
    plain += sum_of(plain_even + plain_odd) + double{plain_rest};
    products += sum_of(products_even + products_odd) + double{products_rest};
  }
};

}  // namespace shoal::ops::cpu
