// Losses of single instances: what hard examples are chosen by. Counts must agree (CHECK).
#pragma once

#include <cstdint>

#include "shoal/base/on_any_device.h"
#include "shoal/ops/loss.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// Computes errors = outside f(inside (a - b)), f(d) = 0.5 (sigma d)^2 where |d| < 1 / sigma^2 and
// |d| - 0.5 / sigma^2 elsewhere. A weight that is null counts as 1. Source: Girshick, "Fast R-CNN",
// 2015.
void smooth_l1(Context& ctx, float sigma, const Tensor& a, const Tensor& b, const Tensor* inside,
               const Tensor* outside, Tensor& errors);
// Computes da = scale inside outside f'(inside (a - b)).
void smooth_l1_backward(Context& ctx, float sigma, float scale, const Tensor& a, const Tensor& b,
                        const Tensor* inside, const Tensor* outside, Tensor& da);

// Computes y (outer, inner) = sums of x (outer, channels, inner) over the channels, in their order.
void sum_channels(Context& ctx, std::int64_t outer, std::int64_t channels, std::int64_t inner,
                  const Tensor& x, Tensor& y);

// Computes each (outer, inner) = -ln(max(p of the label, floor)); 0 for an item that counts
// nothing.
void log_losses(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
                float floor, Tensor& each);

// f and f' of smooth_l1.
SHOAL_ON_ANY_DEVICE inline float smooth_l1_of(float d, float sigma2) {
  const float size = d < 0 ? -d : d;
  return size < 1 / sigma2 ? 0.5f * sigma2 * d * d : size - 0.5f / sigma2;
}
SHOAL_ON_ANY_DEVICE inline float smooth_l1_slope(float d, float sigma2) {
  const float size = d < 0 ? -d : d;
  if (size < 1 / sigma2) return sigma2 * d;
  return static_cast<float>((d > 0) - (d < 0));
}

}  // namespace shoal::ops
