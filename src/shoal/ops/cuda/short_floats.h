// Numbers of 16 bits, for products and convolutions that take their inputs so.
#pragma once

#include <library_types.h>

#include <cstddef>
#include <cstdint>

#include "shoal/tensor/context.h"

namespace shoal::ops::cuda {

inline bool takes_short(Precision precision) {
  return precision == Precision::kBfloat16 || precision == Precision::kFloat16;
}
// CUDA's name of the inputs' type.
inline cudaDataType input_type(Precision precision) {
  return precision == Precision::kBfloat16  ? CUDA_R_16BF
         : precision == Precision::kFloat16 ? CUDA_R_16F
                                            : CUDA_R_32F;
}

// Bytes of `count` numbers of 16 bits, so that what follows is aligned for the libraries.
inline std::size_t short_bytes(std::int64_t count) {
  return (static_cast<std::size_t>(count) * 2 + 255) / 256 * 256;
}
// Pointers are to the device's memory. To the nearest number of the context's precision; what is
// too large for it becomes infinite.
void shorten(Context& ctx, std::int64_t count, const float* from, void* to);
// to = from, or to += from.
void widen(Context& ctx, std::int64_t count, const void* from, float* to, bool adds);

}  // namespace shoal::ops::cuda
