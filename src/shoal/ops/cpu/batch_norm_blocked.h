// Batch normalization of images in blocks of channels: the part of the kernel for these.
#pragma once

#include "shoal/ops/blocked_channels.h"
#include "shoal/ops/normalize.h"

namespace shoal::ops::cpu {

// The functions of BatchNormKernel for an input that lies in blocks of channels; what they write
// lies likewise. Sums are taken in an order that threads do not change.
class BlockedBatchNorm {
 public:
  explicit BlockedBatchNorm(const BatchNormDesc& desc) : desc_(desc) {}
  // Returns whether the tensor lies in blocks now; false for null.
  bool serves(const Tensor* x) const {
    return x != nullptr && as_blocked(x->layout(), desc_.channels, desc_.inner) != nullptr;
  }
  void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                     const RunningSums& running, const AfterNorm& after, Tensor& y) const;
  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance,
                      const AfterNorm& after, Tensor& y) const;
  void backward_batch(Context& ctx, const NormInput& x, const Tensor& mean, const Tensor& variance,
                      const Tensor& dy, const AfterNormBackward& after, Tensor* dx) const;
  void backward_global(Context& ctx, const NormInput& x, const Tensor& mean, const Tensor& variance,
                       const Tensor& dy, const AfterNormBackward& after, Tensor* dx) const;

 private:
  BatchNormDesc desc_;
};

}  // namespace shoal::ops::cpu
