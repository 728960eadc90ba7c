// OpenBLAS's product of matrices, for kernels that look after their own threads. cpu/gemm.cpp alone
// includes cblas.h.
#pragma once

#include <cstdint>

#include "shoal/ops/gemm.h"

namespace shoal::ops::cpu {

// A row-major matrix of which only the place and the distance between rows matter here.
struct In {
  Trans trans;
  const float* data;
  std::int64_t stride;
};

// Computes c (M, N) = alpha op(a) (M, K) op(b) (K, N) + beta c, on the calling thread alone. c's
// rows are `c_stride` apart. Any number of threads may be in here at once.
void sgemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, In a, In b, float beta,
           float* c, std::int64_t c_stride);

// The same on up to `threads` threads, each with rows or columns of c of its own, whichever there
// are more of.
void sgemm_split(int threads, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, In a,
                 In b, float beta, float* c, std::int64_t c_stride);

}  // namespace shoal::ops::cpu
