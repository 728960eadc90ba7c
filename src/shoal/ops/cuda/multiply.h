// Products of matrices in a CUDA device's memory, by cuBLAS.
#pragma once

#include <cstdint>

#include "shoal/ops/gemm.h"

namespace shoal::ops::cuda {

// c = alpha op(a) op(b) + beta c for each of `count` matrices, which follow each other in a, b and
// c: op(a) is (M, K), op(b) is (K, N), c is (M, N), row-major without gaps. Rounds as the context's
// precision says.
void multiply(Context& ctx, std::int64_t count, Trans trans_a, Trans trans_b, std::int64_t m,
              std::int64_t n, std::int64_t k, float alpha, const float* a, const float* b,
              float beta, float* c);

}  // namespace shoal::ops::cuda
