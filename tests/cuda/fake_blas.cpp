#include <cmath>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include "cuda/fake_cuda.h"
#include "cuda/fake_libraries.h"

// cuBLAS's own header leaves it opaque.
struct cublasContext {
  cudaStream_t stream = nullptr;
  bool has_workspace = false, atomics = true;
};

namespace shoal::test {
namespace {

// A column-major matrix, or one of several, and what is taken of it.
struct Matrix {
  cublasOperation_t op;
  const float* data;
  std::int64_t rows, columns;  // as stored
  std::int64_t stride, next;

  // Of the matrix as it takes part, (i, j).
  float at(std::int64_t which, std::int64_t i, std::int64_t j) const {
    return data[which * next + (op == CUBLAS_OP_N ? i + j * stride : j + i * stride)];
  }
  bool is_in_memory(std::int64_t count) const {
    const std::int64_t all = (count - 1) * next + (columns - 1) * stride + rows;
    return stride >= std::max<std::int64_t>(1, rows) &&
           (rows == 0 || columns == 0 ||
            in_fake_memory(data, static_cast<std::size_t>(all) * sizeof(float)));
  }
};

bool is_ready(cublasHandle_t handle) {
  EXPECT_TRUE(handle->has_workspace) << "a product without a fixed workspace";
  EXPECT_FALSE(handle->atomics) << "a product that may add in any order";
  return handle->stream != nullptr;
}

cublasStatus_t multiply_all(cublasHandle_t handle, std::int64_t count, std::int64_t m,
                            std::int64_t n, std::int64_t k, float alpha, Matrix a, Matrix b,
                            float beta, Matrix c, cublasComputeType_t type) {
  if (!is_ready(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (library_fails()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!a.is_in_memory(count) || !b.is_in_memory(count) || !c.is_in_memory(count))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (type != CUBLAS_COMPUTE_32F && type != CUBLAS_COMPUTE_32F_FAST_TF32)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  float* const out = const_cast<float*>(c.data);
  const auto round = [type](float x) { return type == CUBLAS_COMPUTE_32F ? x : round_to_tf32(x); };
  fake_cuda().run_on_host(handle->stream, [=] {
    for (std::int64_t which = 0; which < count; ++which)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i) {
          double sum = 0;
          for (std::int64_t l = 0; l < k; ++l)
            sum += double{round(a.at(which, i, l))} * round(b.at(which, l, j));
          float& to = out[which * c.next + i + j * c.stride];
          to = static_cast<float>(alpha * sum) + (beta == 0 ? 0 : beta * to);
        }
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t multiply_batch(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                              std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                              const void* a, cudaDataType, std::int64_t a_stride,
                              long long int a_next, const void* b, cudaDataType,
                              std::int64_t b_stride, long long int b_next, const void* beta,
                              void* c, cudaDataType, std::int64_t c_stride, long long int c_next,
                              std::int64_t count, cublasComputeType_t type, cublasGemmAlgo_t) {
  const bool a_as_is = op_a == CUBLAS_OP_N, b_as_is = op_b == CUBLAS_OP_N;
  return multiply_all(
      handle, count, m, n, k, *static_cast<const float*>(alpha),
      {op_a, static_cast<const float*>(a), a_as_is ? m : k, a_as_is ? k : m, a_stride, a_next},
      {op_b, static_cast<const float*>(b), b_as_is ? k : n, b_as_is ? n : k, b_stride, b_next},
      *static_cast<const float*>(beta),
      {CUBLAS_OP_N, static_cast<const float*>(c), m, n, c_stride, c_next}, type);
}

cublasStatus_t multiply_one(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                            const void* a, cudaDataType a_type, std::int64_t a_stride,
                            const void* b, cudaDataType b_type, std::int64_t b_stride,
                            const void* beta, void* c, cudaDataType c_type, std::int64_t c_stride,
                            cublasComputeType_t type, cublasGemmAlgo_t algorithm) {
  return multiply_batch(handle, op_a, op_b, m, n, k, alpha, a, a_type, a_stride, 0, b, b_type,
                        b_stride, 0, beta, c, c_type, c_stride, 0, 1, type, algorithm);
}

int computations_left = 0;  // until one fails; 0: none does

}  // namespace

void fail_library(int n) { computations_left = n; }
bool library_fails() { return computations_left > 0 && --computations_left == 0; }

float round_to_tf32(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x1000u) & ~0x1fffu;
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

const ops::cuda::Blas& fake_blas() {
  static const ops::cuda::Blas table = {
      .Create_v2 =
          [](cublasHandle_t* handle) {
            *handle = std::make_unique<cublasContext>().release();
            return CUBLAS_STATUS_SUCCESS;
          },
      .Destroy_v2 =
          [](cublasHandle_t handle) {
            const std::unique_ptr<cublasContext> owned(handle);
            return CUBLAS_STATUS_SUCCESS;
          },
      .SetStream_v2 =
          [](cublasHandle_t handle, cudaStream_t stream) {
            handle->stream = stream;
            handle->has_workspace = false;  // forgotten, as cuBLAS does
            return CUBLAS_STATUS_SUCCESS;
          },
      .SetWorkspace_v2 =
          [](cublasHandle_t handle, void* workspace, std::size_t bytes) {
            handle->has_workspace = in_fake_memory(workspace, bytes);
            return handle->has_workspace ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
          },
      .SetAtomicsMode =
          [](cublasHandle_t handle, cublasAtomicsMode_t mode) {
            handle->atomics = mode == CUBLAS_ATOMICS_ALLOWED;
            return CUBLAS_STATUS_SUCCESS;
          },
      .GetStatusName =
          [](cublasStatus_t status) {
            return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                            : "CUBLAS_STATUS_INVALID_VALUE";
          },
      .GemmEx_64 = multiply_one,
      .GemmStridedBatchedEx_64 = multiply_batch,
  };
  return table;
}

}  // namespace shoal::test
