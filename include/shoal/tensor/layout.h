// Describes how a tensor's numbers lie in memory where that is not the plain way (row-major,
// float32): in a kernel library's own order, or with 16 bits each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "shoal/tensor/shape.h"

namespace shoal {

class Stream;

// Opaque to everything but the kernels that take and give it. Immutable.
class Layout {
 public:
  virtual ~Layout() = default;
  virtual bool equals(const Layout& other) const = 0;
  // Returns the bytes of a tensor of this shape, padding included.
  virtual std::size_t bytes(const Shape& shape) const = 0;
  // Convert between the plain layout and this one in host memory: plain to packed, and packed to
  // plain.
  virtual void pack(const Shape& shape, const float* plain, std::byte* packed) const = 0;
  virtual void unpack(const Shape& shape, const std::byte* packed, float* plain) const = 0;
  // Converts numbers of this shape from `from`, in the layout `before`, to `to`, in `after` (null:
  // plain; one of the two is this), in the memory of the stream's device and in the stream's order.
  // Returns false, and does nothing, if the host is to convert.
  virtual bool convert_on(Stream&, const Shape&, const Layout* /*before*/,
                          const std::byte* /*from*/, const Layout* /*after*/,
                          std::byte* /*to*/) const {
    return false;
  }
  // Returns whether another shape of as many numbers has them in other places.
  virtual bool depends_on_shape() const { return true; }
  // Returns the layout of the same kind for numbers of another shape, in which layers that keep the
  // layout of their bottoms (Layer::keeps_layout) write tops of that shape; null: plain.
  virtual std::shared_ptr<const Layout> like(const Shape&) const { return nullptr; }
};

// Null is the plain layout.
using LayoutPtr = std::shared_ptr<const Layout>;
inline bool same_layout(const LayoutPtr& a, const LayoutPtr& b) {
  return a == b || (a && b && a->equals(*b));
}

// The workspace and layouts that a kernel needs. Known once shapes are, and before memory is
// planned.
struct KernelNeeds {
  std::int64_t workspace = 0;  // floats of Context::scratch, in each pass
  // The layouts in which it reads its bottoms and writes its tops, and their gradients; null:
  // plain.
  LayoutPtr input{}, output{};
  // The floats that a backward pass takes, where they differ from those of a forward pass.
  std::optional<std::int64_t> backward_workspace{};
  std::int64_t kept = 0;  // floats that it keeps from pass to pass, in memory of its own
  // It computes by Winograd's algorithm, which takes a large part of both.
  bool has_winograd = false;
};

}  // namespace shoal
