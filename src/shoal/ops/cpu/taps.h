// Finds the part of a window that lies inside the plane.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shoal/ops/window.h"

namespace shoal::ops::cpu {

// The taps of one output that are inside are [begin, end); nothing is inside if they are equal.
struct Taps {
  std::int64_t begin, end;
};
inline Taps inside_at(const WindowAxis& axis, std::int64_t output) {
  const std::int64_t start = output * axis.stride - axis.pad;
  const std::int64_t begin = std::max<std::int64_t>(0, -start);
  return {begin, std::max(begin, std::min(axis.kernel, axis.in - start))};
}

// Returns how many places of the padded axis the window of one output covers.
inline float covered(const WindowAxis& axis, std::int64_t output) {
  const std::int64_t start = output * axis.stride - axis.pad;
  return static_cast<float>(
      std::max<std::int64_t>(1, std::min(start + axis.kernel, axis.in + axis.pad) - start));
}

}  // namespace shoal::ops::cpu
