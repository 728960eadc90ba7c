#include <cmath>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/fake_cuda.h"
#include "cuda/fake_libraries.h"

// cuBLAS's own header leaves it opaque.
struct cublasContext {
  cudaStream_t stream = nullptr;
  bool has_workspace = false, atomics = true;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace shoal::test {
namespace {

// A column-major matrix, or one of several, and what is taken of it.
struct Matrix {
  cublasOperation_t op;
  const void* data;
  cudaDataType type;
  std::int64_t rows, columns;  // as stored
  std::int64_t stride, next;

  // Returns the number (i, j) of the matrix as it takes part.
  float at(std::int64_t which, std::int64_t i, std::int64_t j) const {
    return load_number(data, type,
                       which * next + (op == CUBLAS_OP_N ? i + j * stride : j + i * stride));
  }
  bool is_in_memory(std::int64_t count) const {
    const std::int64_t all = (count - 1) * next + (columns - 1) * stride + rows;
    return stride >= std::max<std::int64_t>(1, rows) &&
           (rows == 0 || columns == 0 ||
            in_fake_memory(data, static_cast<std::size_t>(all) * size_of(type)));
  }
};

bool is_ready(cublasHandle_t handle) {
  EXPECT_TRUE(handle->has_workspace) << "a product without a fixed workspace";
  EXPECT_FALSE(handle->atomics) << "a product that may add in any order";
  EXPECT_TRUE(handle->math & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)
      << "a product that may add in 16 bits";
  return handle->stream != nullptr;
}

cublasStatus_t multiply_all(cublasHandle_t handle, std::int64_t count, std::int64_t m,
                            std::int64_t n, std::int64_t k, float alpha, Matrix a, Matrix b,
                            float beta, Matrix c, cublasComputeType_t type) {
  if (!is_ready(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (library_fails()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!a.is_in_memory(count) || !b.is_in_memory(count) || !c.is_in_memory(count))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool known =
      type == CUBLAS_COMPUTE_32F || (type == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F);
  if (!known || size_of(a.type) == 0 || a.type != b.type ||
      (c.type != CUDA_R_32F && c.type != a.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  void* const out = const_cast<void*>(c.data);
  const auto round = [type](float x) { return type == CUBLAS_COMPUTE_32F ? x : round_to_tf32(x); };
  fake_cuda().run_on_host(handle->stream, [=] {
    for (std::int64_t which = 0; which < count; ++which)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i) {
          double sum = 0;
          for (std::int64_t l = 0; l < k; ++l)
            sum += double{round(a.at(which, i, l))} * round(b.at(which, l, j));
          const std::int64_t to = which * c.next + i + j * c.stride;
          const float before = beta == 0 ? 0 : beta * load_number(out, c.type, to);
          store_number(static_cast<float>(alpha * sum) + before, out, c.type, to);
        }
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t multiply_batch(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                              std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                              const void* a, cudaDataType a_type, std::int64_t a_stride,
                              long long int a_next, const void* b, cudaDataType b_type,
                              std::int64_t b_stride, long long int b_next, const void* beta,
                              void* c, cudaDataType c_type, std::int64_t c_stride,
                              long long int c_next, std::int64_t count, cublasComputeType_t type,
                              cublasGemmAlgo_t) {
  const bool a_as_is = op_a == CUBLAS_OP_N, b_as_is = op_b == CUBLAS_OP_N;
  return multiply_all(handle, count, m, n, k, *static_cast<const float*>(alpha),
                      {op_a, a, a_type, a_as_is ? m : k, a_as_is ? k : m, a_stride, a_next},
                      {op_b, b, b_type, b_as_is ? k : n, b_as_is ? n : k, b_stride, b_next},
                      *static_cast<const float*>(beta),
                      {CUBLAS_OP_N, c, c_type, m, n, c_stride, c_next}, type);
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

std::size_t size_of(cudaDataType type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 0;
}
float load_number(const void* data, cudaDataType type, std::int64_t i) {
  if (type == CUDA_R_16BF) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
  if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(data)[i]);
  return static_cast<const float*>(data)[i];
}
void store_number(float x, void* data, cudaDataType type, std::int64_t i) {
  if (type == CUDA_R_16BF)
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(x);
  else if (type == CUDA_R_16F)
    static_cast<__half*>(data)[i] = __float2half_rn(x);
  else
    static_cast<float*>(data)[i] = x;
}

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
      .SetMathMode =
          [](cublasHandle_t handle, cublasMath_t mode) {
            handle->math = mode;
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
