// Local response normalization of images in blocks of channels.
#pragma once

#include "shoal/ops/blocked_channels.h"
#include "shoal/ops/normalize.h"

namespace shoal::ops::cpu {

// The part of the kernel for region kAcross and an input that lies in blocks; what it writes lies
// likewise.
class BlockedLrn {
 public:
  explicit BlockedLrn(const LrnDesc& desc);
  // Returns whether the tensor lies in blocks now.
  bool serves(const Tensor& x) const {
    return as_blocked(x.layout(), desc_.channels, places_) != nullptr;
  }
  // Returns the floats of scratch for one thread.
  std::int64_t room() const;
  void forward(Context& ctx, const Tensor& x, Tensor& y) const;
  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) const;

 private:
  template <class Work>
  void each_strip(Context& ctx, const BlockedChannels& layout, const Work& work) const;
  std::int64_t row() const;  // floats of one place's row of channels

  LrnDesc desc_;
  std::int64_t places_, reach_;
  float ratio_;
};

// The same for region kWithin.
class BlockedLrnWithin {
 public:
  explicit BlockedLrnWithin(const LrnDesc& desc);
  bool serves(const Tensor& x) const {
    return as_blocked(x.layout(), desc_.channels, places_) != nullptr;
  }
  std::int64_t room() const;
  void forward(Context& ctx, const Tensor& x, Tensor& y) const;
  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) const;

 private:
  template <class Work>
  void each_plane(Context& ctx, const BlockedChannels& layout, const Work& work) const;
  template <int kBlock>
  void box(const float* in, float* rows, float* out) const;

  LrnDesc desc_;
  std::int64_t places_;
  float ratio_;
};

}  // namespace shoal::ops::cpu
