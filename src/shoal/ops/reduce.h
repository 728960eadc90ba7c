// Rows of numbers made into one number each, or measured by the numbers that they make.
#pragma once

#include <cstdint>

#include "shoal/tensor/context.h"

namespace shoal::ops {

enum class Reduce { kSum, kAbsSum, kSquareSum };

// Computes y[r] = coeff times the sum of x[r][i], |x[r][i]| or x[r][i]^2 over a row: y.count() rows
// of x.count() / y.count() numbers. Summed in double in an order that threads do not change.
void reduce_rows(Context& ctx, Reduce kind, float coeff, const Tensor& x, Tensor& y);
// Computes gx[r][i] = coeff g[r] times 1, the sign of x (0 for 0), or 2 x. x is not looked at for
// kSum. gx may be x.
void reduce_rows_backward(Context& ctx, Reduce kind, float coeff, const Tensor& g, const Tensor& x,
                          Tensor& gx);

// Computes y = (x - its row's mean) / divisor, the row's deviation (biased) plus eps, which is
// written to `divisor`, one a row; an empty divisor: y = x - mean. y may be x.
void standardize_rows(Context& ctx, std::int64_t rows, float eps, const Tensor& x, Tensor& y,
                      Tensor& divisor);
// Computes gx = (g - mean of g - y times the mean of g y) / divisor: the gradient for eps 0;
// without divisor g - mean of g. gx may be g.
void standardize_rows_backward(Context& ctx, std::int64_t rows, const Tensor& g, const Tensor& y,
                               const Tensor& divisor, Tensor& gx);

}  // namespace shoal::ops
