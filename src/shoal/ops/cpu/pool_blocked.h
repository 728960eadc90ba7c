// Pooling of images in blocks of channels: the part of the pooling kernel for these.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shoal/ops/blocked_channels.h"
#include "shoal/ops/window.h"

namespace shoal::ops::cpu {

// Pools by kMax and kAverage. Winners are kept as one byte each.
class BlockedPool {
 public:
  explicit BlockedPool(const PoolDesc& desc);
  // Returns the layout in which x lies now, if it is one that forward takes; else null.
  const BlockedChannels* serves(const Tensor& x) const;
  // Writes y in blocks, too.
  void forward(Context& ctx, const Tensor& x, Tensor& y);
  // Needs a forward pass before it, and for kMax keeps_winners.
  void backward(Context& ctx, const Tensor& dy, Tensor& dx) const;

 private:
  template <class F>
  void each_plane(Context& ctx, F f) const;
  LayoutPtr output_layout() const;

  PoolDesc desc_;
  std::int64_t in_, out_;  // places of one plane
  bool max_;
  std::shared_ptr<const BlockedChannels> layout_;  // of x in the last forward pass
  std::vector<std::uint8_t> winners_;              // the tap of each output's largest number
};

}  // namespace shoal::ops::cpu
