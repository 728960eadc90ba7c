// The order of tensors in which tensor cores convolve: channels last.
#pragma once

#include <cstdint>

#include "shoal/tensor/tensor.h"

namespace shoal::ops::cuda {

// Numbers that are (N, C, S) in plain order are kept as (N, S, C), whatever the tensor's axes are.
class ChannelsLast final : public Layout {
 public:
  ChannelsLast(std::int64_t channels, std::int64_t inner) : channels(channels), inner(inner) {}

  bool equals(const Layout& other) const override;
  std::size_t bytes(const Shape& shape) const override;
  void pack(const Shape& shape, const float* plain, std::byte* packed) const override;
  void unpack(const Shape& shape, const std::byte* packed, float* plain) const override;
  bool pack_on(Stream& stream, const Shape& shape, const std::byte* plain,
               std::byte* packed) const override;
  bool unpack_on(Stream& stream, const Shape& shape, const std::byte* packed,
                 std::byte* plain) const override;

  const std::int64_t channels, inner;  // C and S
};

// Null, plain order, where the two are the same.
LayoutPtr channels_last(std::int64_t channels, std::int64_t inner);
// The layout as what it is; null if the numbers are in plain order.
inline const ChannelsLast* as_channels_last(const LayoutPtr& layout) {
  return static_cast<const ChannelsLast*>(layout.get());  // the one layout of these devices
}

// The layout in which all tensors are, for an op that takes each number alone; plain if they
// differ.
template <class... Others>
LayoutPtr common_layout(const Tensor& first, const Others&... others) {
  const LayoutPtr layout = first.layout();
  return (same_layout(layout, others.layout()) && ...) ? layout : nullptr;
}

}  // namespace shoal::ops::cuda
