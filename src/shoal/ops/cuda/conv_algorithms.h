// The choice among cuDNN's algorithms for a convolution.
#pragma once

#include <iterator>

#include "shoal/ops/cuda/dnn_conv.h"

namespace shoal::ops::cuda {

// One for each pass.
struct ConvAlgorithms {
  Why why;                     // which pass has none; empty: each has one
  bool channels_last = false;  // the order of x, w, y and their gradients
  ConvAlgorithm of[std::size(kConvPasses)];
  const ConvAlgorithm& operator[](ConvPass pass) const { return of[static_cast<int>(pass)]; }
  std::size_t workspace() const;  // bytes: of the pass that needs most
};

// They are chosen when a GPU first meets the description and the context's precision, and kept for
// it. In float32 a pass has the algorithm that cuDNN names first, so that every run has the same
// bits. In the others it has the fastest, as measured, and the faster order of the numbers:
// another run may choose another.
// Any thread. Throws DeviceError.
ConvAlgorithms conv_algorithms(const ConvDesc& desc, const Context& ctx);

}  // namespace shoal::ops::cuda
