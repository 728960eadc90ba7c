// oneDNN's kernels that impls.cpp lists.
#pragma once

#include "shoal/ops/cpu_kernels.h"
#include "shoal/ops/window.h"

namespace shoal::ops::dnnl {

extern const ConvImpl kConv;
extern const KernelLibrary kLibrary;

}  // namespace shoal::ops::dnnl
