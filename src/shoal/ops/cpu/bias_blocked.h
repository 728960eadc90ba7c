// The bias of images in blocks of channels.
#pragma once

#include "shoal/tensor/context.h"

namespace shoal::ops::cpu {

// y += b by channel, for a y that lies in blocks.
void add_bias_to_blocks(Context& ctx, const Tensor& b, Tensor& y);
// db += the sums of dy by channel, for a dy that lies in blocks.
void add_bias_gradient_of_blocks(Context& ctx, const Tensor& dy, Tensor& db);

}  // namespace shoal::ops::cpu
