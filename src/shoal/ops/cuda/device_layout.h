// The layouts of numbers in a CUDA device's memory: images in plain order or with their channels
// last, of 32 or 16 bits.
#pragma once

#include <cstdint>

#include "shoal/ops/cuda/element_type.h"
#include "shoal/tensor/tensor.h"

namespace shoal::ops::cuda {

// Numbers that are (N, C, S) in plain order are kept as (N, S, C), whatever the tensor's axes are.
// They are in plain order if C or S is 1, which are both 1 then.
class DeviceLayout final : public Layout {
 public:
  DeviceLayout(std::int64_t channels, std::int64_t inner, ElementType type);

  bool equals(const Layout& other) const override;
  std::size_t bytes(const Shape& shape) const override;
  void pack(const Shape& shape, const float* plain, std::byte* packed) const override;
  void unpack(const Shape& shape, const std::byte* packed, float* plain) const override;
  // Returns false if both have channels last, but not the same.
  bool convert_on(Stream& stream, const Shape& shape, const Layout* before, const std::byte* from,
                  const Layout* after, std::byte* to) const override;
  bool depends_on_shape() const override { return false; }

  bool is_plain_order() const { return channels == 1; }

  const std::int64_t channels, inner;  // C and S
  const ElementType type;
};

// Returns null where that is the plain layout.
LayoutPtr channels_last(std::int64_t channels, std::int64_t inner,
                        ElementType type = ElementType::kFloat32);
inline LayoutPtr plain_order(ElementType type) { return channels_last(1, 1, type); }

// Returns the layout as what it is; null if the numbers are in plain order. Each layout of these
// devices is a DeviceLayout.
const DeviceLayout* as_channels_last(const LayoutPtr& layout);
ElementType type_of(const LayoutPtr& layout);

// Returns the layout in which all tensors are, for an op that takes each number alone. If they
// differ: in plain order, of 16 bits if all are.
LayoutPtr common_layout(std::span<const Tensor* const> tensors);
template <class... Others>
LayoutPtr common_layout(const Tensor& first, const Others&... others) {
  const Tensor* const all[] = {&first, &others...};
  return common_layout(all);
}

}  // namespace shoal::ops::cuda
