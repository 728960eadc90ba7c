// Says which kernels of OpenBLAS compute products, and which would be better.
#pragma once

#include <string>

#include "shoal/ops/cpu_kernels.h"

namespace shoal::ops {

// OpenBLAS chooses its kernels when it is loaded, or takes those that OPENBLAS_CORETYPE names. A
// version older than the processor does not know it and takes those for a Prescott of 2004, without
// AVX: an inner product took 2.1 times as long. Returns what OPENBLAS_CORETYPE is to be then, or if
// those that it has taken are not held to `kernels`; "" if the choice is good.
std::string better_blas_kernels(CpuKernels kernels = CpuKernels::kAuto);

// Returns the name of the kernels in use, "Haswell", if this processor would run others that make
// more of it: it has AVX-512 and they do not, or AVX2; else "".
std::string weak_blas_kernels();

// "OpenBLAS 0.3.21 for SkylakeX".
std::string describe_blas();

}  // namespace shoal::ops
