// A number a channel against images in blocks of channels: the work of Scale, Bias and PReLU on
// these.
#pragma once

#include "shoal/ops/blocked_channels.h"
#include "shoal/ops/broadcast.h"

namespace shoal::ops::cpu {

// Returns the layout of x if that is blocks of channels and the dims give each channel one number:
// of all images, of one image, or of all channels. Else null: the op is done in plain order.
LayoutPtr blocks_of(const BroadcastDims& dims, const Tensor& x);

// The ops of broadcast.h and pointwise.h of these names on tensors that lie in, or are brought to,
// `layout`, which is blocks_of() one of them; what is written lies likewise. The channels that fill
// up the last block stay zeros. Sums are taken in an order that threads do not change.
class BlockedBroadcast {
 public:
  BlockedBroadcast(Context& ctx, const BroadcastDims& dims, const LayoutPtr& layout)
      : ctx_(ctx), dims_(dims), layout_(layout) {}
  // A null `factor` stands for ones, a null `shift` for zeros.
  void scale_and_shift(const Tensor& x, const Tensor* factor, const Tensor* shift, Tensor& y) const;
  // Reads x only for g_factor, and factor only for gx.
  void scale_backward(const Tensor& g, const Tensor& x, const Tensor* factor, Tensor* gx,
                      SumInto g_factor, SumInto g_shift) const;
  void prelu(const Tensor& x, const Tensor& slope, Tensor& y) const;
  void prelu_backward(const Tensor& x, const Tensor& slope, const Tensor& dy, Tensor& dx) const;
  void prelu_slope_backward(const Tensor& x, const Tensor& dy, Tensor& dslope) const;

 private:
  Context& ctx_;
  BroadcastDims dims_;
  LayoutPtr layout_;
};

}  // namespace shoal::ops::cpu
