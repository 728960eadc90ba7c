// Arithmetic of one interpolated axis (rearrange.h), for the kernels of every device.
#pragma once

#include <cstdint>

#include "shoal/base/on_any_device.h"
#include "shoal/ops/rearrange.h"

namespace shoal::ops {

// Finds the numbers of x that outputs lie between, and back.
class AxisPlaces {
 public:
  explicit AxisPlaces(const InterpolatedAxis& axis) : cut_(axis.cut), in_(axis.in), out_(axis.out) {
    if (axis.out > 1) step_ = static_cast<float>(axis.in - 1) / static_cast<float>(axis.out - 1);
  }
  struct Pair {
    std::int64_t first, second;  // in x
    float of_first, of_second;
  };
  SHOAL_ON_ANY_DEVICE Pair pair(std::int64_t o) const {
    const float at = step_ * static_cast<float>(o);
    std::int64_t first = static_cast<std::int64_t>(at);
    if (first > in_ - 1) first = in_ - 1;
    const float rest = at - static_cast<float>(first);
    const std::int64_t second = first + 1 < in_ ? first + 1 : first;
    return {cut_ + first, cut_ + second, 1 - rest, rest};
  }
  // The outputs [begin, end) are all that may read number i of x, and a few more.
  SHOAL_ON_ANY_DEVICE std::int64_t begin(std::int64_t i) const {
    if (step_ <= 0) return 0;
    const std::int64_t o = static_cast<std::int64_t>(static_cast<float>(i - cut_ - 1) / step_) - 2;
    return o < 0 ? 0 : o;
  }
  SHOAL_ON_ANY_DEVICE std::int64_t end(std::int64_t i) const {
    if (step_ <= 0) return out_;
    const std::int64_t o = static_cast<std::int64_t>(static_cast<float>(i - cut_ + 1) / step_) + 3;
    return o > out_ ? out_ : o;
  }
  // Returns the part of output o that number i of x makes.
  SHOAL_ON_ANY_DEVICE float weight(std::int64_t o, std::int64_t i) const {
    const Pair two = pair(o);
    return (two.first == i ? two.of_first : 0) + (two.second == i ? two.of_second : 0);
  }

 private:
  std::int64_t cut_, in_, out_;
  float step_ = 0;
};

}  // namespace shoal::ops
