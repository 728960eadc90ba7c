// Several tensors of one shape, element by element.
#pragma once

#include <optional>
#include <span>

#include "shoal/ops/vector.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// Computes y = sum of weights[i] x[i], added in order; no weights: all are 1. `relu`: the ReLU of
// that with this negative slope. y may be one of x.
void weighted_sum(Context& ctx, Tensors x, std::span<const float> weights, Tensor& y,
                  std::optional<float> relu = {});

// Computes y = x[0] x[1] ..., multiplied in order.
void product(Context& ctx, Tensors x, Tensor& y);
// Computes y = g times all of x but x[skip]; y may be g.
void product_but_one(Context& ctx, Tensors x, int skip, const Tensor& g, Tensor& y);
// Computes y = g p / x: the gradient of a product p in one of its factors, undefined where x is 0;
// y may be g.
void product_over(Context& ctx, const Tensor& g, const Tensor& p, const Tensor& x, Tensor& y);

// Computes y = the largest of x, winner = its index; y may be one of x. If equal, the second of the
// first two wins; from the third on only a strictly larger one takes over. Source: what BVLC Caffe
// 1.0 does with ties.
void maximum(Context& ctx, Tensors x, Tensor& y, Tensor& winner);
// Computes y = g where winner is `index`, else 0; y may be g.
void take_where(Context& ctx, const Tensor& winner, int index, const Tensor& g, Tensor& y);

}  // namespace shoal::ops
