// Whole tensors as vectors of n numbers. Counts must agree (CHECK).
#pragma once

#include <cstdint>
#include <span>

#include "shoal/tensor/context.h"

namespace shoal::ops {

using Tensors = std::span<const Tensor* const>;

void copy(Context& ctx, const Tensor& x, Tensor& y);                  // y = x, whatever the shapes
void axpy(Context& ctx, float a, const Tensor& x, Tensor& y);         // y += a x
void add(Context& ctx, const Tensor& x, const Tensor& z, Tensor& y);  // y = x + z; y may be x or z

// Both take several different tensors; a device has one launch for many.
void fill_all(Context& ctx, float value, std::span<Tensor* const> y);  // each y = value
void scale_all(Context& ctx, float a, std::span<Tensor* const> y);     // each y *= a

inline void fill(Context& ctx, float value, Tensor& y) {
  Tensor* const one[] = {&y};
  fill_all(ctx, value, one);
}
inline void scale(Context& ctx, float a, Tensor& y) {
  Tensor* const one[] = {&y};
  scale_all(ctx, a, one);
}

// Sums over all numbers of several tensors, in double, in an order that threads do not change. Each
// of these three waits for the device.
double asum(Context& ctx, Tensors x);            // of |x|
double sum_of_squares(Context& ctx, Tensors x);  // of x^2
bool all_finite(Context& ctx, Tensors x);        // no NaN, no infinity

}  // namespace shoal::ops
