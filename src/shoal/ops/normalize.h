// Ops that scale numbers by what their neighbours or their batch are: LRN, batch normalization.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/ops/op.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// Local response normalization of x (N, C, H, W): y = x * s^-beta, where at every place
//   kAcross  s = k + alpha / size * (sum of x^2 over the `size` channels around, those that exist)
//   kWithin  s = 1 + alpha / size^2 * (sum of x^2 over the size x size window around, in its
//   plane); k does not matter
// Source: BVLC Caffe 1.0; alpha is divided by the full size at the borders too.
struct LrnDesc {
  enum class Region { kAcross, kWithin };
  Region region = Region::kAcross;
  std::int64_t images = 0, channels = 0, height = 0, width = 0;
  std::int64_t size = 5;  // odd
  float alpha = 1, beta = 0.75f, k = 1;
  bool operator==(const LrnDesc&) const = default;
};

class LrnKernel : public Kernel {
 public:
  // overwrites y
  virtual void forward(Context& ctx, const Tensor& x, Tensor& y) = 0;
  // overwrites dx
  virtual void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) = 0;
};
using LrnImpl = Impl<LrnDesc, LrnKernel>;

// Batch normalization of x (N, C, S) by channel: y = (x - mean) / sqrt(variance + eps).
struct BatchNormDesc {
  std::int64_t images = 0, channels = 0, inner = 0;  // N C S
  float eps = 1e-5f;
  bool operator==(const BatchNormDesc&) const = default;
};

// x and y may be one tensor, and dx and dy, if every call does so.
class BatchNormKernel : public Kernel {
 public:
  // With the batch's own mean and variance (biased), which are written to mean (C) and variance
  // (C). Overwrites y.
  virtual void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                             Tensor& y) = 0;
  // With the given ones. Overwrites y.
  virtual void forward_global(Context& ctx, const Tensor& x, const Tensor& mean,
                              const Tensor& variance, Tensor& y) = 0;
  // The gradient through forward_batch, from its x and the mean and variance it wrote, or (if
  // x_is_normalized) from its y in the place of x. Overwrites dx.
  virtual void backward_batch(Context& ctx, const Tensor& x, bool x_is_normalized,
                              const Tensor& mean, const Tensor& variance, const Tensor& dy,
                              Tensor& dx) = 0;
  // The gradient through forward_global. Overwrites dx.
  virtual void backward_global(Context& ctx, const Tensor& variance, const Tensor& dy,
                               Tensor& dx) = 0;
};
using BatchNormImpl = Impl<BatchNormDesc, BatchNormKernel>;

}  // namespace shoal::ops
