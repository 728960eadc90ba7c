// Products of matrices in a CUDA device's memory, by cuBLAS.
#pragma once

#include <cstdint>

#include "shoal/ops/cuda/element_type.h"
#include "shoal/ops/gemm.h"

namespace shoal::ops::cuda {

// Numbers in the device's memory.
struct Operand {
  Operand(const float* floats) : data(floats) {}  // NOLINT: each pointer to floats is one
  Operand(const void* numbers, ElementType of) : data(numbers), type(of) {}
  const void* data;
  ElementType type = ElementType::kFloat32;
};

// Computes c = alpha op(a) op(b) + beta c for each of `count` matrices, which follow each other in
// a, b and c: op(a) is (M, K), op(b) is (K, N), c is (M, N), row-major without gaps. Rounds as the
// context's precision says. Numbers of 16 bits are of the precision's type.
void multiply(Context& ctx, std::int64_t count, Trans trans_a, Trans trans_b, std::int64_t m,
              std::int64_t n, std::int64_t k, float alpha, Operand a, Operand b, float beta,
              void* c, ElementType c_type = ElementType::kFloat32);

}  // namespace shoal::ops::cuda
