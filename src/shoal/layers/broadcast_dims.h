// Computes how the numbers of Scale and Bias lie along the axes of the blob they act on.
#pragma once

#include "shoal/layers/layer.h"
#include "shoal/ops/broadcast.h"

namespace shoal {

// Returns the axes of `shape` that a param spans: num_axes of them from `axis` on, -1: to the last,
// 0: none, a single number. Throws ConfigError, naming `layer`, for axes that are not there.
Shape spanned_axes(const LayerParameter& layer, const Shape& shape, int axis, int num_axes);

// `numbers`, called `name`, against `blob`: its sizes must be those of blob's axes from `axis` on;
// a single number goes with any. Throws ConfigError with both shapes.
ops::BroadcastDims broadcast_dims(const LayerParameter& layer, const Blob& blob, int axis,
                                  const Shape& numbers, const std::string& name);

// Returns whether each channel of a blob of this shape meets one number, so that the ops of
// broadcast.h work on images however their channels lie.
bool is_by_channel(const ops::BroadcastDims& dims, const Shape& shape);

}  // namespace shoal
