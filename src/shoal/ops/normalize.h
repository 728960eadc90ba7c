// Ops that scale numbers by what their neighbours or their batch are: LRN, batch normalization.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/ops/broadcast.h"
#include "shoal/ops/op.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// Local response normalization of x (N, C, H, W): y = x * s^-beta, where at every place
//   kAcross  s = k + alpha / size * (sum of x^2 over the `size` channels around, those that exist)
//   kWithin  s = 1 + alpha / size^2 * (sum of x^2 over the size x size window around, in its plane)
// Source: BVLC Caffe 1.0; alpha is divided by the full size at the borders too.
struct LrnDesc {
  enum class Region { kAcross, kWithin };
  Region region = Region::kAcross;
  std::int64_t images = 0, channels = 0, height = 0, width = 0;
  std::int64_t size = 5;                 // odd
  float alpha = 1, beta = 0.75f, k = 1;  // k: of kAcross
  bool operator==(const LrnDesc&) const = default;
  bool is_empty() const { return images == 0; }
};

class LrnKernel : public Kernel {
 public:
  // Overwrites y.
  virtual void forward(Context& ctx, const Tensor& x, Tensor& y) = 0;
  // Overwrites dx.
  virtual void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) = 0;
};
using LrnImpl = Impl<LrnDesc, LrnKernel>;

// Batch normalization of x (N, C, S) by channel: y = (x - mean) / sqrt(variance + eps).
struct BatchNormDesc {
  std::int64_t images = 0, channels = 0, inner = 0;  // N C S
  float eps = 1e-5f;
  bool operator==(const BatchNormDesc&) const = default;
  bool is_empty() const { return images == 0; }
};

// Sums over batches, to which forward_batch adds: the sum becomes sum fraction + the batch's mean
// (C), variance m / (m - 1) (C; m = N S, without the quotient if that is 1) and 1 (1).
struct RunningSums {
  Tensor *mean = nullptr, *variance = nullptr, *weight = nullptr;  // all or none
  float fraction = 1;
};

// The end of the same pass, which makes y of the normalized numbers n: n factor + shift, then the
// ReLU of that.
struct AfterNorm {
  const Tensor* factor = nullptr;  // (C); null: ones
  const Tensor* shift = nullptr;   // (C); null: zeros
  std::optional<float> slope;      // of the ReLU, 0 or more; none: no ReLU
  Tensor* normalized = nullptr;    // n is written there too, unless null
};

// The part of AfterNorm that a backward pass does. dy is the gradient of the ReLU's top or, without
// slope, of its bottom. The numbers that the ReLU let pass are found from n, factor and shift.
struct AfterNormBackward {
  const Tensor* factor = nullptr;  // (C); null: ones
  const Tensor* shift = nullptr;   // (C); null: zeros. For the ReLU alone
  std::optional<float> slope{};    // of the ReLU; none: its backward pass is not done here
  SumInto g_factor{}, g_shift{};   // as in scale_backward
};

// The input of a backward pass: x, or n if is_normalized.
struct NormInput {
  const Tensor* tensor = nullptr;  // null where nothing is needed
  bool is_normalized = false;
};

// Normalizes batches. x and y may be one tensor, and dx and dy, if every call does so.
class BatchNormKernel : public Kernel {
 public:
  // Normalizes with the batch's own mean and variance (biased), which are written to mean (C) and
  // variance (C). Overwrites y.
  virtual void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                             RunningSums running, AfterNorm after, Tensor& y) = 0;
  // Normalizes with the given ones. Overwrites y.
  virtual void forward_global(Context& ctx, const Tensor& x, const Tensor& mean,
                              const Tensor& variance, AfterNorm after, Tensor& y) = 0;
  // Overwrites dx, unless it is null, with the gradient through forward_batch, which wrote the mean
  // and the variance.
  virtual void backward_batch(Context& ctx, NormInput x, const Tensor& mean, const Tensor& variance,
                              const Tensor& dy, AfterNormBackward after, Tensor* dx) = 0;
  // Overwrites dx, unless it is null, with the gradient through forward_global. x is needed only
  // for g_factor; a ReLU's backward pass is not done.
  virtual void backward_global(Context& ctx, NormInput x, const Tensor& mean,
                               const Tensor& variance, const Tensor& dy, AfterNormBackward after,
                               Tensor* dx) = 0;
};
using BatchNormImpl = Impl<BatchNormDesc, BatchNormKernel>;

}  // namespace shoal::ops
