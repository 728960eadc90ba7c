// The order of tensors in which tensor cores convolve: channels last.
#pragma once

#include <memory>

#include "shoal/tensor/tensor.h"

namespace shoal::ops::cuda {

// A tensor (N, C, S...) of two axes or more is kept as (N, S..., C). Weights (K, C, T...) likewise.
const LayoutPtr& channels_last();
inline bool is_channels_last(const LayoutPtr& layout) {
  return layout && layout == channels_last();
}

// The layout that all of the tensors, which have one shape, are in, for an op that takes each
// number alone; plain if they differ.
template <class... Tensors>
LayoutPtr common_layout(const Tensor& first, const Tensors&... others) {
  const LayoutPtr layout = first.layout();
  const bool equal =
      ((same_layout(layout, others.layout()) && first.shape() == others.shape()) && ...);
  return equal ? layout : nullptr;
}

}  // namespace shoal::ops::cuda
