// Where kernels of a CUDA device find the numbers of a tensor.
#pragma once

#include "shoal/tensor/context.h"
#include "shoal/tensor/tensor.h"

namespace shoal::ops::cuda {

// The device's copy of a tensor, in plain order.
inline const float* read(Context& ctx, const Tensor& x) {
  return reinterpret_cast<const float*>(x.read(ctx));
}
inline float* write(Context& ctx, Tensor& y) { return reinterpret_cast<float*>(y.write(ctx)); }
inline float* mut(Context& ctx, Tensor& y) { return reinterpret_cast<float*>(y.mut(ctx)); }

}  // namespace shoal::ops::cuda
