// cuBLAS, cuDNN and NCCL without a GPU: they check how they are called, and queue on the stream of
// their handle what they compute.
#pragma once

#include "shoal/ops/cuda/blas.h"
#include "shoal/ops/cuda/dnn.h"
#include "shoal/ops/cuda/nccl.h"

namespace shoal::test {

// For fake_cuda(). A wrong call gets the status that the library gives, or is a failure of the test
// where the library would not notice.
const ops::cuda::Blas& fake_blas();
const ops::cuda::Dnn& fake_dnn();
const ops::cuda::Nccl& fake_nccl();

// Makes the n-th computation (1: the next) of either library fail for want of memory or by an
// internal error; 0: none. Thread-compatible.
void fail_library(int n);
// Returns whether this computation is the one that fails.
bool library_fails();

// The number as TF32 keeps it: 10 bits of mantissa.
float round_to_tf32(float x);
// Number i of an array of float32, bfloat16 or float16 numbers, and its bytes; others: 0 bytes.
std::size_t size_of(cudaDataType type);
float load_number(const void* data, cudaDataType type, std::int64_t i);
void store_number(float x, void* data, cudaDataType type, std::int64_t i);

}  // namespace shoal::test
