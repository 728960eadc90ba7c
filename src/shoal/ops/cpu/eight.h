// Eight floats handled as one, for sums: a compiler must not reorder a float sum by itself, so a
// plain loop becomes scalar code, and often one over arrays of partial sums too (with two such
// arrays a tenth of the speed, measured with g++ 12).
#pragma once

#include <cstdint>
#include <cstring>

namespace shoal::ops::cpu {

// an extension that gcc and clang share, on any processor
using Eight = float __attribute__((vector_size(32)));

inline void load(const float* from, Eight& to) { std::memcpy(&to, from, sizeof(Eight)); }

inline double sum_of(const Eight& lanes) {
  double sum = 0;
  for (int i = 0; i < 8; ++i) sum += double{lanes[i]};
  return sum;
}

// The sums of a - a0 and of (a - a0) (b - b0) over runs of numbers.
struct PairSums {
  double plain = 0, products = 0;
  void add(const float* a, float a0, const float* b, float b0, std::int64_t n) {
    Eight plain_even{}, plain_odd{}, products_even{}, products_odd{}, a_even, a_odd, b_even, b_odd;
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      load(a + i, a_even), load(a + i + 8, a_odd), load(b + i, b_even), load(b + i + 8, b_odd);
      a_even -= a0, a_odd -= a0;
      plain_even += a_even, plain_odd += a_odd;
      products_even += a_even * (b_even - b0), products_odd += a_odd * (b_odd - b0);
    }
    float plain_rest = 0, products_rest = 0;
    for (; i < n; ++i) plain_rest += a[i] - a0, products_rest += (a[i] - a0) * (b[i] - b0);
    plain_even += plain_odd, products_even += products_odd;
    plain += sum_of(plain_even) + double{plain_rest};
    products += sum_of(products_even) + double{products_rest};
  }
};

}  // namespace shoal::ops::cpu
