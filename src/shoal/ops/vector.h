// Whole tensors as vectors of n numbers. Counts must agree (CHECK).
#pragma once

#include <cstdint>

#include "shoal/tensor/context.h"

namespace shoal::ops {

void fill(Context& ctx, float value, Tensor& y);                      // y = value
void copy(Context& ctx, const Tensor& x, Tensor& y);                  // y = x, whatever the shapes
void scale(Context& ctx, float a, Tensor& y);                         // y *= a
void axpy(Context& ctx, float a, const Tensor& x, Tensor& y);         // y += a x
void add(Context& ctx, const Tensor& x, const Tensor& z, Tensor& y);  // y = x + z; y may be x or z

// summed in double, in an order that threads do not change
double dot(Context& ctx, const Tensor& x, const Tensor& y);
double asum(Context& ctx, const Tensor& x);            // sum of |x|, likewise
double sum_of_squares(Context& ctx, const Tensor& x);  // likewise
bool all_finite(Context& ctx, const Tensor& x);        // no NaN, no infinity

}  // namespace shoal::ops
