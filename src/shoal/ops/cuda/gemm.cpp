#include <algorithm>
#include <memory>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/blas.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/multiply.h"
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

struct Inputs {
  const void *a, *b;
};
// As the precision wants them: where they are, or shortened.
Inputs inputs(Context& ctx, BlasStream& blas, const Operand& a, std::int64_t a_count,
              const Operand& b, std::int64_t b_count) {
  const ElementType type = input_type(ctx.precision());
  const std::size_t a_bytes = a.type == type ? 0 : short_bytes(a_count),
                    b_bytes = b.type == type ? 0 : short_bytes(b_count);
  if (a_bytes + b_bytes == 0) return {a.data, b.data};
  auto* const room = static_cast<std::byte*>(blas.room(ctx, a_bytes + b_bytes));
  const auto as_type = [&](const Operand& one, std::int64_t count, std::byte* at) {
    if (one.type == type) return one.data;
    shorten(ctx, type, count, static_cast<const float*>(one.data), at);
    return static_cast<const void*>(at);
  };
  return {as_type(a, a_count, room), as_type(b, b_count, room + a_bytes)};
}

// The tensor in plain order, of the type that it has.
Operand operand(Context& ctx, const Tensor& x) {
  const ElementType type = type_of(x.layout());
  return {x.read(ctx, plain_order(type)), type};
}

}  // namespace

// cuBLAS's matrices are column-major: what is a to us is a's transpose to it, and c's transpose is
// the product of b's and a's.
void multiply(Context& ctx, std::int64_t count, Trans trans_a, Trans trans_b, std::int64_t m,
              std::int64_t n, std::int64_t k, float alpha, Operand a, Operand b, float beta,
              void* c, ElementType c_type) {
  if (count == 0 || m == 0 || n == 0) return;
  BlasStream& blas = blas_of(ctx);
  const std::int64_t a_row = std::max<std::int64_t>(1, trans_a == Trans::kYes ? m : k),
                     b_row = std::max<std::int64_t>(1, trans_b == Trans::kYes ? k : n);
  const cublasOperation_t op_a = operation(trans_a), op_b = operation(trans_b);
  const cublasComputeType_t type = compute_type(ctx.precision());
  const auto [left, right] = inputs(ctx, blas, a, count * m * k, b, count * k * n);
  const cudaDataType input = name_of(input_type(ctx.precision())), output = name_of(c_type);
  blas.check(count == 1 ? blas.functions().GemmEx_64(blas.handle(), op_b, op_a, n, m, k, &alpha,
                                                     right, input, b_row, left, input, a_row, &beta,
                                                     c, output, n, type, CUBLAS_GEMM_DEFAULT)
                        : blas.functions().GemmStridedBatchedEx_64(
                              blas.handle(), op_b, op_a, n, m, k, &alpha, right, input, b_row,
                              k * n, left, input, a_row, m * k, &beta, c, output, n, m * n, count,
                              type, CUBLAS_GEMM_DEFAULT),
             "multiplying matrices");
}

namespace {

// As gemm does; with beta 0, c is written as numbers of this type.
void gemm_to(Context& ctx, Trans trans_a, Trans trans_b, std::int64_t m, std::int64_t n,
             std::int64_t k, float alpha, const Tensor& a, const Tensor& b, float beta, Tensor& c,
             ElementType type) {
  CHECK(a.count() == m * k && b.count() == k * n && c.count() == m * n)
      << a.shape().str() << " times " << b.shape().str() << " to " << c.shape().str() << " as M "
      << m << " N " << n << " K " << k;
  const Operand left = operand(ctx, a), right = operand(ctx, b);
  const LayoutPtr layout = plain_order(type);
  multiply(ctx, 1, trans_a, trans_b, m, n, k, alpha, left, right, beta,
           beta == 0 ? c.write(ctx, layout) : c.mut(ctx, layout), type);
}

}  // namespace

void gemm(Context& ctx, Trans trans_a, Trans trans_b, std::int64_t m, std::int64_t n,
          std::int64_t k, float alpha, const Tensor& a, const Tensor& b, float beta, Tensor& c) {
  gemm_to(ctx, trans_a, trans_b, m, n, k, alpha, a, b, beta, c, ElementType::kFloat32);
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
    // in x's type, which the layer below works in
    if (dx != nullptr)
      gemm_to(ctx, Trans::kNo, weight_is_kn ? Trans::kYes : Trans::kNo, m, k, n, 1, dy, w, 0, *dx,
              type_of(x.layout()));
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
