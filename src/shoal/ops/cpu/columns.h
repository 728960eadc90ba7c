// The columns of a convolution: for one image and some of its channels, a matrix of channels * taps
// rows with one number for each output place, in which row c * taps + t holds what the windows see
// of channel c at tap t.
#pragma once

#include <cstdint>

#include "shoal/ops/window.h"

namespace shoal::ops::cpu {

// Returns the description with two axes at least; a missing outer one has size 1.
ConvDesc with_two_axes(ConvDesc desc);

// Returns the numbers of dw, to which backward adds: zeros if it is to overwrite them.
float* sums_of(const ConvDesc& desc, Tensor& dw);

// Returns whether every window is one place and moves by one: then x is its own columns, and
// OpenBLAS does well with them.
bool sees_itself(const ConvDesc& desc);

// Output places come in rows along the last axis; `Rows` are some of them, counted over all outer
// axes.
struct Rows {
  std::int64_t begin, end;
};
std::int64_t row_count(const ConvDesc& desc);  // of all output rows
std::int64_t row_width(const ConvDesc& desc);  // places in one row

// Overwrites col, whose matrix rows are `col_stride` >= (rows.end - rows.begin) * row_width apart.
void im2col(const ConvDesc& desc, std::int64_t channels, const float* image, Rows rows, float* col,
            std::int64_t col_stride);

// Adds every number of col to the place of the image it came from; what came from outside is
// dropped.
void col2im(const ConvDesc& desc, std::int64_t channels, const float* col, std::int64_t col_stride,
            Rows rows, float* image);

}  // namespace shoal::ops::cpu
