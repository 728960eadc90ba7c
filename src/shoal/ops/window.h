// Ops that look at their input through a sliding window: convolution, im2col, pooling.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/ops/op.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// One spatial axis. Output o looks at the inputs o * stride - pad + t * dilation for the taps t in
// [0, kernel); inputs outside [0, in) are zeros (convolution) or not there (pooling).
struct WindowAxis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
  bool operator==(const WindowAxis&) const = default;
};

// Some of the three passes of a convolution.
struct PassSet {
  bool forward = true, data = true, weights = true;  // y; dx; dw and db
  bool operator==(const PassSet&) const = default;
};
inline constexpr PassSet kNoPass{false, false, false};

// Convolution of x (N, C, I...) with w (K, C/G, T...) and b (K) to y (N, K, O...): any number of
// spatial axes, I, T, O their in, kernel and out. Channels and outputs fall into G groups; an
// output sees the channels of its group.
struct ConvDesc {
  std::int64_t images = 0, channels = 0, outputs = 0, groups = 1;  // N C K G; G divides C and K
  std::vector<WindowAxis> axes;
  // The slope below 0 of a ReLU that forward applies to y; none: y is the bare sum. backward takes
  // the gradient of the bare sum in either case.
  std::optional<float> relu{};
  bool overwrites_dw = false;  // backward overwrites dw instead of adding to it
  PassSet winograd{};          // which may go by Winograd's algorithm
  bool operator==(const ConvDesc&) const = default;
  bool is_empty() const { return images == 0; }

  std::int64_t in_count() const;   // numbers in one channel of x
  std::int64_t out_count() const;  // numbers in one channel of y
  std::int64_t taps() const;       // weights of one channel
  std::int64_t multiply_adds() const;
};

class ConvKernel : public Kernel {
 public:
  // Overwrites y. b may be null.
  virtual void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
                       Tensor& y) = 0;
  // Overwrites dx, adds to dw (unless the description says otherwise) and db; any of them may be
  // null. x is not read if dw is null, w not if dx is.
  virtual void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy,
                        Tensor* dx, Tensor* dw, Tensor* db) = 0;
  // True: forward keeps what it needs of w, and does not read w again until w's storage or version
  // is another.
  virtual bool keeps_weights() const { return false; }
  // Returns which passes go by Winograd's algorithm.
  virtual PassSet winograd() const { return kNoPass; }
};
using ConvImpl = Impl<ConvDesc, ConvKernel>;

// The input that each window covers, as columns: y (N, C * T..., O...) where row c * T + t holds
// channel c at tap t, zeros outside. The description's outputs and groups do not matter.
class Im2colKernel : public Kernel {
 public:
  virtual void forward(Context& ctx, const Tensor& x, Tensor& y) = 0;  // overwrites y
  // Overwrites dx: each input sums its places in dy.
  virtual void backward(Context& ctx, const Tensor& dy, Tensor& dx) = 0;
};
using Im2colImpl = Impl<ConvDesc, Im2colKernel>;

// Pooling of P planes of x (P, H, W) to y (P, OH, OW); dilation is 1. A window is clipped to the
// plane. One that lies wholly outside gives 0, index -1, and no gradient.
struct PoolDesc {
  enum class Method {
    kMax,  // the largest number; of equals the first in row order wins; NaNs lose
    // The sum divided by the area of the window clipped to [-pad, in + pad): padding counts, what
    // lies beyond does not.
    kAverage,
    // Stochastic pooling (weighted_window.h): a number drawn with a chance in proportion to it, by
    // one coin for each output, and the mean of such draws.
    kSampled,
    kExpected,
  };
  Method method = Method::kMax;
  std::int64_t planes = 0;
  WindowAxis height, width;
  bool keeps_winners = false;  // kMax: forward keeps the winners, so that backward needs no x
  bool operator==(const PoolDesc&) const = default;
  bool is_empty() const { return planes == 0; }
};

class PoolKernel : public Kernel {
 public:
  // Overwrites y, and index (the shape of y; kMax only) with h * W + w of each winner; index may be
  // null. kSampled draws output i by the word that is i words after `coins`, others read no coins.
  virtual void forward(Context& ctx, const Tensor& x, Tensor& y, Tensor* index,
                       const Random::State& coins) = 0;
  // Overwrites dx. x is read by kExpected, and by kMax without keeps_winners.
  virtual void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) = 0;
};
using PoolImpl = Impl<PoolDesc, PoolKernel>;

}  // namespace shoal::ops
