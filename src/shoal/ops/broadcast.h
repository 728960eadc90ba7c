// A short vector against a tensor that is seen as outer x dim x inner numbers: element (o, d, i)
// meets number d.
#pragma once

#include <cstdint>

#include "shoal/tensor/context.h"

namespace shoal::ops {

struct BroadcastDims {
  std::int64_t outer = 1, dim = 1, inner = 1;
};

// Computes y = x factor + shift; no shift: 0. y may be x.
void scale_and_shift(Context& ctx, const BroadcastDims& dims, const Tensor& x, const Tensor& factor,
                     const Tensor* shift, Tensor& y);
// Computes y = x + shift. y may be x.
void shift(Context& ctx, const BroadcastDims& dims, const Tensor& x, const Tensor& shift,
           Tensor& y);

// Says where a sum of `dim` numbers goes; null: it is not wanted.
struct SumInto {
  Tensor* tensor = nullptr;
  bool add = false;  // to what is there, else over it
};

// The gradients of scale_and_shift from that of y, in one pass:
//   gx = g factor (null: not wanted; may be g)
//   g_factor = sum over o and i of g x
//   g_shift = sum over o and i of g
// Sums are taken in an order that threads do not change. x is looked at only for g_factor.
void scale_backward(Context& ctx, const BroadcastDims& dims, const Tensor& g, const Tensor& x,
                    const Tensor& factor, Tensor* gx, SumInto g_factor, SumInto g_shift);
// Computes only g_shift.
void shift_backward(Context& ctx, const BroadcastDims& dims, const Tensor& g, SumInto g_shift);

}  // namespace shoal::ops
