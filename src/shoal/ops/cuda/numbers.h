// Where kernels of a CUDA device find the numbers of a tensor.
#pragma once

#include "shoal/tensor/context.h"
#include "shoal/tensor/tensor.h"

namespace shoal::ops::cuda {

// The device's copy of a tensor, in this layout.
inline const float* read(Context& ctx, const Tensor& x, const LayoutPtr& layout = nullptr) {
  return reinterpret_cast<const float*>(x.read(ctx, layout));
}
inline float* write(Context& ctx, Tensor& y, const LayoutPtr& layout = nullptr) {
  return reinterpret_cast<float*>(y.write(ctx, layout));
}
inline float* mut(Context& ctx, Tensor& y, const LayoutPtr& layout = nullptr) {
  return reinterpret_cast<float*>(y.mut(ctx, layout));
}

}  // namespace shoal::ops::cuda
