// Arithmetic of the focal loss of one item (loss.h), for the kernels of every device.
#pragma once

#include <cmath>

#include "shoal/base/on_any_device.h"
#include "shoal/ops/loss.h"

namespace shoal::ops {

SHOAL_ON_ANY_DEVICE inline double focal_term(const FocalDesc& focal, float p) {
  const float at = p < focal.floor ? focal.floor : p;
  return -double{focal.alpha} * std::pow(1.0 - p, double{focal.gamma}) * std::log(double{at});
}

// Returns s, where the gradient with respect to the score of class c is s (p_c - (1 at the label)):
// alpha ((1 - p)^gamma - gamma (1 - p)^(gamma - 1) p ln p).
SHOAL_ON_ANY_DEVICE inline float focal_slope(const FocalDesc& focal, float p) {
  const double at = p < focal.floor ? focal.floor : p, rest = 1.0 - p;
  const double power = std::pow(rest, double{focal.gamma});
  if (focal.gamma == 0) return static_cast<float>(focal.alpha * power);
  // At p = 1 ln p is 0, and stronger than its factor.
  const double second = rest > 0 ? focal.gamma * (power / rest) * p * std::log(at) : 0.0;
  return static_cast<float>(focal.alpha * (power - second));
}

}  // namespace shoal::ops
