// Boxes of numbers moved between tensors. A box has a size on every axis and starts at an offset on
// every axis; both tensors have as many axes, and the box lies within (CHECK).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/tensor/context.h"

namespace shoal::ops {

using Offset = std::span<const std::int64_t>;

// Sets y to the box of x that has y's shape and starts at `from`.
void cut(Context& ctx, const Tensor& x, Offset from, Tensor& y);
// Adds that box to y.
void add_cut(Context& ctx, const Tensor& x, Offset from, Tensor& y);
// The box of y that has x's shape and starts at `to` becomes x; what lies round it stays.
void paste(Context& ctx, const Tensor& x, Tensor& y, Offset to);

// Returns an offset of `at` on one axis and 0 on the others.
inline std::vector<std::int64_t> along(const Shape& shape, int axis, std::int64_t at) {
  std::vector<std::int64_t> offset(static_cast<std::size_t>(shape.axes()));
  offset[static_cast<std::size_t>(axis)] = at;
  return offset;
}

}  // namespace shoal::ops
