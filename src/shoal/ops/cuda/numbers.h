// Finds the numbers of a tensor for kernels of a CUDA device.
#pragma once

#include "shoal/base/log.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/tensor/context.h"
#include "shoal/tensor/tensor.h"

namespace shoal::ops::cuda {

// Returns the device's copy of a tensor, in this layout, whose numbers are float32.
inline const float* read(Context& ctx, const Tensor& x, const LayoutPtr& layout = nullptr) {
  CHECK(type_of(layout) == ElementType::kFloat32);
  return reinterpret_cast<const float*>(x.read(ctx, layout));
}
inline float* write(Context& ctx, Tensor& y, const LayoutPtr& layout = nullptr) {
  CHECK(type_of(layout) == ElementType::kFloat32);
  return reinterpret_cast<float*>(y.write(ctx, layout));
}
inline float* mut(Context& ctx, Tensor& y, const LayoutPtr& layout = nullptr) {
  CHECK(type_of(layout) == ElementType::kFloat32);
  return reinterpret_cast<float*>(y.mut(ctx, layout));
}

}  // namespace shoal::ops::cuda
