// A convolution's operands as matrices in a CUDA device's memory. Each has one row for what is
// multiplied or summed, and in it the output places of some images, one image after the other.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/ops/window.h"
#include "shoal/tensor/layout.h"

namespace shoal::ops::cuda {

// Pointers are to the first of `images` images. P is the number of output places of an image.

// Fills columns (C * T, images * P): row c * T + t holds channel c at tap t, zeros outside.
void to_columns(Context& ctx, const ConvDesc& desc, std::int64_t images, const float* x,
                float* columns);
// Overwrites dx: each input sums its places in the columns, in order of the taps.
void from_columns(Context& ctx, const ConvDesc& desc, std::int64_t images, const float* columns,
                  float* dx);
// Fills rows (K, images * P) from dy (images, K, P).
void to_rows(Context& ctx, const ConvDesc& desc, std::int64_t images, const float* dy, float* rows);
// Fills y (images, K, P) from rows (K, images * P), plus the bias (K; null: none), through the
// description's ReLU.
void from_rows(Context& ctx, const ConvDesc& desc, std::int64_t images, const float* rows,
               const float* bias, float* y);
// The same of y itself, in the layout in which a convolution has written its bare sums there.
void finish(Context& ctx, const ConvDesc& desc, const LayoutPtr& layout, const float* bias,
            void* y);

}  // namespace shoal::ops::cuda
