// Numbers moved to other places, by steps, by a mask or between neighbours of a plane.
#pragma once

#include <cstdint>

#include "shoal/ops/slice.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// Sets y, seen as numbers of these `sizes` (at most kMostSteps axes), to
//   y[i0, i1, ...] = x_flat[i0 steps[0] + i1 steps[1] + ...].
// A step of 0 repeats. Every number that this names must be in x (CHECK).
inline constexpr int kMostSteps = 8;
void rearrange(Context& ctx, const Tensor& x, Offset sizes, Offset steps, Tensor& y);

// Both are `planes` planes, of x smaller ones than of y; mask has a place of y's plane for each
// number of x. Sets y[plane][mask[plane][i]] = x[plane][i] and the rest of y to 0. Of several
// numbers for one place the last stays. A number whose place is not in the plane goes nowhere;
// `outside` (1) becomes how many there are.
void spread(Context& ctx, std::int64_t planes, const Tensor& x, const Tensor& mask, Tensor& y,
            Tensor& outside);
// Sets gx[plane][i] = g[plane][mask[plane][i]], 0 for a place that is not in the plane.
void gather(Context& ctx, std::int64_t planes, const Tensor& g, const Tensor& mask, Tensor& gx);

// One axis of planes that are made larger or smaller: output o lies at (in - 1) / (out - 1) o (0 if
// out is 1) of the `in` numbers that follow the first `cut` ones; the axis of x is `size` long.
struct InterpolatedAxis {
  std::int64_t size = 1, cut = 0, in = 1, out = 1;
  bool operator==(const InterpolatedAxis&) const = default;
};
// Sets y (planes, height.out, width.out) to x (planes, height.size, width.size), interpolated
// between the four nearest numbers.
void interpolate(Context& ctx, const InterpolatedAxis& height, const InterpolatedAxis& width,
                 const Tensor& x, Tensor& y);
// Overwrites gx with the gradient, in an order that threads do not change.
void interpolate_backward(Context& ctx, const InterpolatedAxis& height,
                          const InterpolatedAxis& width, const Tensor& g, Tensor& gx);

}  // namespace shoal::ops
