// oneDNN's kernels that impls.cpp lists.
#pragma once

#include "shoal/ops/window.h"

namespace shoal::ops::dnnl {

extern const ConvImpl kConv;

}  // namespace shoal::ops::dnnl
