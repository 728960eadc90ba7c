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

// Returns the precision in which a product is computed under `wanted`. One of 16 bits gives way to
// TF32, which keeps as many bits of each number, where that is faster: it reads float32 where that
// is, and does not round it to memory first; but it multiplies at half the rate, and other numbers
// must be widened.
Precision precision_of(Precision wanted, double products, std::int64_t float_inputs,
                       std::int64_t short_numbers) {
  constexpr double kProductsPerByte = 100;  // by data sheets 90 to 130, from Ampere to Hopper
  const auto bytes = static_cast<double>(4 * float_inputs - 8 * short_numbers);
  return takes_short(wanted) && products < kProductsPerByte * bytes ? Precision::kTf32 : wanted;
}

// Gives a product its inputs in one type, converted in a stream's room where they are of another.
class Inputs {
 public:
  Inputs(Context& ctx, ElementType type) : ctx_(ctx), type_(type) {}

  // Returns the bytes of room that get() needs for `count` numbers.
  std::size_t bytes(const Operand& numbers, std::int64_t count) const {
    if (numbers.type == type_) return 0;
    return type_ == ElementType::kFloat32 ? 2 * short_bytes(count) : short_bytes(count);
  }
  const void* get(const Operand& numbers, std::int64_t count, void* room) const {
    if (numbers.type == type_) return numbers.data;
    if (type_ == ElementType::kFloat32)
      widen(ctx_, numbers.type, count, numbers.data, static_cast<float*>(room), false);
    else
      shorten(ctx_, type_, count, static_cast<const float*>(numbers.data), room);
    return room;
  }

 private:
  Context& ctx_;
  const ElementType type_;
};

// Returns the tensor in plain order, of the type that it has.
Operand operand(Context& ctx, const Tensor& x) {
  const ElementType type = type_of(x.layout());
  return {x.read(ctx, plain_order(type)), type};
}

}  // namespace

// Multiplies by cuBLAS, whose matrices are column-major: what is a to us is a's transpose to it,
// and c's transpose is the product of b's and a's.
void multiply(Context& ctx, std::int64_t count, Trans trans_a, Trans trans_b, std::int64_t m,
              std::int64_t n, std::int64_t k, float alpha, Operand a, Operand b, float beta,
              void* c, ElementType c_type) {
  if (count == 0 || m == 0 || n == 0) return;
  BlasStream& blas = blas_of(ctx);
  const std::int64_t a_row = std::max<std::int64_t>(1, trans_a == Trans::kYes ? m : k),
                     b_row = std::max<std::int64_t>(1, trans_b == Trans::kYes ? k : n);
  const cublasOperation_t op_a = operation(trans_a), op_b = operation(trans_b);
  const std::int64_t a_count = count * m * k, b_count = count * k * n, c_count = count * m * n;
  const auto floats = [](ElementType of, std::int64_t numbers) {
    return of == ElementType::kFloat32 ? numbers : 0;
  };
  const std::int64_t float_inputs = floats(a.type, a_count) + floats(b.type, b_count),
                     short_numbers =
                         a_count + b_count + c_count - float_inputs - floats(c_type, c_count);
  const Precision precision =
      precision_of(ctx.precision(), static_cast<double>(c_count) * static_cast<double>(k),
                   float_inputs, short_numbers);
  const Inputs inputs(ctx, input_type(precision));
  // cuBLAS has no product of float32 whose result is of 16 bits.
  const bool shortens = c_type != ElementType::kFloat32 && !takes_short(precision);
  CHECK(!shortens || beta == 0);
  const std::size_t a_bytes = inputs.bytes(a, a_count), b_bytes = inputs.bytes(b, b_count),
                    c_bytes = shortens ? 2 * short_bytes(c_count) : 0;
  auto* const room = static_cast<std::byte*>(
      a_bytes + b_bytes + c_bytes == 0 ? nullptr : blas.room(ctx, a_bytes + b_bytes + c_bytes));
  const void *const left = inputs.get(a, a_count, room), *const right =
                                                             inputs.get(b, b_count, room + a_bytes);
  void* const out = shortens ? room + a_bytes + b_bytes : c;
  const cudaDataType input = name_of(input_type(precision)),
                     output = shortens ? CUDA_R_32F : name_of(c_type);
  const cublasComputeType_t type = compute_type(precision);
  blas.check(count == 1 ? blas.functions().GemmEx_64(blas.handle(), op_b, op_a, n, m, k, &alpha,
                                                     right, input, b_row, left, input, a_row, &beta,
                                                     out, output, n, type, CUBLAS_GEMM_DEFAULT)
                        : blas.functions().GemmStridedBatchedEx_64(
                              blas.handle(), op_b, op_a, n, m, k, &alpha, right, input, b_row,
                              k * n, left, input, a_row, m * k, &beta, out, output, n, m * n, count,
                              type, CUBLAS_GEMM_DEFAULT),
             "multiplying matrices");
  if (shortens) shorten(ctx, c_type, c_count, static_cast<const float*>(out), c);
}

namespace {

// Does what gemm does; with beta 0, c is written as numbers of this type.
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
    if (desc_.relu) map(ctx, {MapKind::kRelu, *desc_.relu}, y, y);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    const auto [m, k, n, weight_is_kn, overwrites_dw, relu] = desc_;
    const float beta = overwrites_dw ? 0 : 1;
    if (dw != nullptr && weight_is_kn)
      cuda::gemm(ctx, Trans::kYes, Trans::kNo, k, n, m, 1, x, dy, beta, *dw);
    if (dw != nullptr && !weight_is_kn)
      cuda::gemm(ctx, Trans::kYes, Trans::kNo, n, k, m, 1, dy, x, beta, *dw);
    if (db != nullptr) add_bias_gradient(ctx, n, 1, dy, *db);
    // Puts dx in x's type, which the layer below works in.
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
