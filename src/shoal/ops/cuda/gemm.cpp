#include <algorithm>
#include <memory>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/blas.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/multiply.h"
#include "shoal/ops/cuda/numbers.h"
#include "shoal/ops/cuda/short_floats.h"

namespace shoal::ops::cuda {
namespace {

cublasOperation_t operation(Trans trans) {
  return trans == Trans::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// CUBLAS_COMPUTE_32F multiplies in float32, without tensor cores.
cublasComputeType_t compute_type(Precision precision) {
  return precision == Precision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

struct Numbers {
  const float* data;
  std::int64_t count;
};
struct Inputs {
  const void *a, *b;
};
// As the precision wants them: where they are, or shortened.
Inputs inputs(Context& ctx, BlasStream& blas, Numbers a, Numbers b) {
  if (!takes_short(ctx.precision())) return {a.data, b.data};
  auto* const left =
      static_cast<std::byte*>(blas.room(ctx, short_bytes(a.count) + short_bytes(b.count)));
  std::byte* const right = left + short_bytes(a.count);
  shorten(ctx, a.count, a.data, left);
  shorten(ctx, b.count, b.data, right);
  return {left, right};
}

}  // namespace

// cuBLAS's matrices are column-major: what is a to us is a's transpose to it, and c's transpose is
// the product of b's and a's.
void multiply(Context& ctx, std::int64_t count, Trans trans_a, Trans trans_b, std::int64_t m,
              std::int64_t n, std::int64_t k, float alpha, const float* a, const float* b,
              float beta, float* c) {
  if (count == 0 || m == 0 || n == 0) return;
  BlasStream& blas = blas_of(ctx);
  const std::int64_t a_row = std::max<std::int64_t>(1, trans_a == Trans::kYes ? m : k),
                     b_row = std::max<std::int64_t>(1, trans_b == Trans::kYes ? k : n);
  const cublasOperation_t op_a = operation(trans_a), op_b = operation(trans_b);
  const cublasComputeType_t type = compute_type(ctx.precision());
  const auto [left, right] = inputs(ctx, blas, {a, count * m * k}, {b, count * k * n});
  const cudaDataType input = input_type(ctx.precision());
  blas.check(count == 1 ? blas.functions().GemmEx_64(blas.handle(), op_b, op_a, n, m, k, &alpha,
                                                     right, input, b_row, left, input, a_row, &beta,
                                                     c, CUDA_R_32F, n, type, CUBLAS_GEMM_DEFAULT)
                        : blas.functions().GemmStridedBatchedEx_64(
                              blas.handle(), op_b, op_a, n, m, k, &alpha, right, input, b_row,
                              k * n, left, input, a_row, m * k, &beta, c, CUDA_R_32F, n, m * n,
                              count, type, CUBLAS_GEMM_DEFAULT),
             "multiplying matrices");
}

void gemm(Context& ctx, Trans trans_a, Trans trans_b, std::int64_t m, std::int64_t n,
          std::int64_t k, float alpha, const Tensor& a, const Tensor& b, float beta, Tensor& c) {
  CHECK(a.count() == m * k && b.count() == k * n && c.count() == m * n)
      << a.shape().str() << " times " << b.shape().str() << " to " << c.shape().str() << " as M "
      << m << " N " << n << " K " << k;
  const float *const left = read(ctx, a), *const right = read(ctx, b);
  multiply(ctx, 1, trans_a, trans_b, m, n, k, alpha, left, right, beta,
           beta == 0 ? write(ctx, c) : mut(ctx, c));
}

namespace {

class Dense final : public DenseKernel {
 public:
  explicit Dense(const DenseDesc& desc) : desc_(desc) {}

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    cuda::gemm(ctx, Trans::kNo, desc_.weight_is_kn ? Trans::kNo : Trans::kYes, desc_.rows,
               desc_.outputs, desc_.inputs, 1, x, w, 0, y);
    if (b != nullptr) add_bias(ctx, desc_.outputs, 1, *b, y);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    const auto [m, k, n, weight_is_kn] = desc_;
    if (dw != nullptr && weight_is_kn)
      cuda::gemm(ctx, Trans::kYes, Trans::kNo, k, n, m, 1, x, dy, 1, *dw);
    if (dw != nullptr && !weight_is_kn)
      cuda::gemm(ctx, Trans::kYes, Trans::kNo, n, k, m, 1, dy, x, 1, *dw);
    if (db != nullptr) add_bias_gradient(ctx, n, 1, dy, *db);
    if (dx != nullptr)
      cuda::gemm(ctx, Trans::kNo, weight_is_kn ? Trans::kYes : Trans::kNo, m, k, n, 1, dy, w, 0,
                 *dx);
  }

 private:
  DenseDesc desc_;
};

}  // namespace

const DenseImpl kDense{"cuda", [](const DenseDesc&, const Context&) { return kYes; },
                       [](const DenseDesc& desc, Context&) -> std::unique_ptr<DenseKernel> {
                         return std::make_unique<Dense>(desc);
                       }};

}  // namespace shoal::ops::cuda
