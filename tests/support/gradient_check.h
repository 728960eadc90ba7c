// Checks that what backward makes is the slope of what forward computes.
#pragma once

#include <cstdint>
#include <string>

#include "support/layer_cases.h"

namespace shoal::test {

struct GradientReport {
  // The largest error of a tensor's gradient over the largest number in it.
  double worst = 0;
  std::string where{};  // which tensor and element that was, both numbers
  int compared = 0;     // numbers
};

// Takes the objective sum of u * top, u random (the weight for a layer with a loss), and compares
// its gradient with central differences of two steps, extrapolated (error of fourth order; the sum
// is taken in double over the tops' differences, so that what does not change adds no noise). Up to
// 256 elements of each bottom with a gradient and of each param are tried.
GradientReport check_gradient(const LayerCase& c, std::uint64_t seed,
                              const Device* device = nullptr);

}  // namespace shoal::test
