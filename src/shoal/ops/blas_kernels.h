// Which kernels of OpenBLAS fit the processor.
#pragma once

#include <string>

namespace shoal::ops {

// OpenBLAS chooses its kernels when it is loaded, or takes those that OPENBLAS_CORETYPE names. A
// version older than the processor does not know it and takes those for a Prescott of 2004, without
// AVX: an inner product took 2.1 times as long. Returns what OPENBLAS_CORETYPE is to be then; "" if
// the choice is good. Defined with the products, in cpu/gemm.cpp.
std::string better_blas_kernels();

}  // namespace shoal::ops
