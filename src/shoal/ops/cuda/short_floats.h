// Conversions to and from numbers of 16 bits, for products and convolutions that take them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shoal/ops/cuda/element_type.h"
#include "shoal/tensor/context.h"

namespace shoal::ops::cuda {

// Returns the bytes of `count` numbers of 16 bits, so that what follows is aligned for the
// libraries.
inline std::size_t short_bytes(std::int64_t count) {
  return (static_cast<std::size_t>(count) * 2 + 255) / 256 * 256;
}
// Pointers are to the device's memory. To the nearest number of the type; what is too large for it
// becomes infinite.
void shorten(Context& ctx, ElementType type, std::int64_t count, const float* from, void* to);
// Computes to = from, or to += from.
void widen(Context& ctx, ElementType type, std::int64_t count, const void* from, float* to,
           bool adds);

}  // namespace shoal::ops::cuda
