// The power of LRN's formula.
#pragma once

#include <cmath>

namespace shoal::ops::cpu {

// Calls f with s^-beta as a function of s: for the exponents that nets have by square roots (they
// vectorize; 1e-7 of the value), and for any other.
template <class F>
void with_power(float beta, F f) {
  if (beta == 0.75f)
    f([](float s) {
      const float r = 1 / std::sqrt(s);
      return r * std::sqrt(r);
    });
  else if (beta == 0.5f)
    f([](float s) { return 1 / std::sqrt(s); });
  else if (beta == 1)
    f([](float s) { return 1 / s; });
  else
    f([beta](float s) { return std::pow(s, -beta); });
}

}  // namespace shoal::ops::cpu
