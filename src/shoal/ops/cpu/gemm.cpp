#include <cblas.h>

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/dense_blocked.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/relu.h"
#include "shoal/ops/cpu/sgemm.h"

namespace shoal::ops::cpu {
namespace {

// OpenBLAS's own threads gain nothing inside small products and fight with ours: one product, one
// thread, always.
bool pin_openblas() {
  openblas_set_num_threads(1);
  return true;
}

CBLAS_TRANSPOSE cblas(Trans trans) { return trans == Trans::kYes ? CblasTrans : CblasNoTrans; }

// A product with M = 1, for which OpenBLAS's general product is slow.
void row_times_matrix(std::int64_t n, std::int64_t k, float alpha, In a, In b, float beta,
                      float* c) {
  if (beta == 0) std::fill(c, c + n, 0.0f);
  const bool stored_as_nk = b.trans == Trans::kYes;
  cblas_sgemv(
      CblasRowMajor, stored_as_nk ? CblasNoTrans : CblasTrans,
      static_cast<blasint>(stored_as_nk ? n : k), static_cast<blasint>(stored_as_nk ? k : n), alpha,
      b.data, static_cast<blasint>(b.stride), a.data,
      static_cast<blasint>(a.trans == Trans::kYes ? a.stride : 1), beta == 0 ? 1.0f : beta, c, 1);
}

}  // namespace

void sgemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, In a, In b, float beta,
           float* c, std::int64_t c_stride) {
  static const bool pinned = pin_openblas();
  static_cast<void>(pinned);
  if (m == 0 || n == 0) return;
  if (m == 1) return row_times_matrix(n, k, alpha, a, b, beta, c);
  cblas_sgemm(CblasRowMajor, cblas(a.trans), cblas(b.trans), static_cast<blasint>(m),
              static_cast<blasint>(n), static_cast<blasint>(k), alpha, a.data,
              static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), beta, c,
              static_cast<blasint>(c_stride));
}

void sgemm_split(int threads, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, In a,
                 In b, float beta, float* c, std::int64_t c_stride) {
  // Rows or columns: pieces that vector registers like.
  constexpr std::int64_t kUnit = 16;
  // Multiplications: below, a second thread costs more than it brings.
  constexpr std::int64_t kLeastWork = 1 << 16;
  const bool by_rows = m >= n;
  const std::int64_t units = ((by_rows ? m : n) + kUnit - 1) / kUnit;
  const std::int64_t unit_work = std::max<std::int64_t>(1, (by_rows ? n : m) * k * kUnit);
  parallel_for(
      threads, units, (kLeastWork + unit_work - 1) / unit_work,
      [&](int, std::int64_t begin, std::int64_t end) {
        const std::int64_t first = begin * kUnit, last = std::min(end * kUnit, by_rows ? m : n);
        if (by_rows) {
          const In rows{a.trans, a.data + (a.trans == Trans::kYes ? first : first * a.stride),
                        a.stride};
          sgemm(last - first, n, k, alpha, rows, b, beta, c + first * c_stride, c_stride);
        } else {
          const In columns{b.trans, b.data + (b.trans == Trans::kYes ? first * b.stride : first),
                           b.stride};
          sgemm(m, last - first, k, alpha, a, columns, beta, c + first, c_stride);
        }
      });
}

namespace {

// Makes y (rows, outputs) the ReLU of y + b, or of y, in one sweep over memory.
void add_bias_and_relu(Context& ctx, std::int64_t outputs, const Tensor* b, float slope,
                       Tensor& y) {
  const float* const bias = b != nullptr ? b->in() : nullptr;
  float* const out = y.mut();
  parallel_for(ctx.threads(), y.count() / outputs, grain_of(outputs),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   float* const row = out + r * outputs;
                   for (std::int64_t i = 0; bias != nullptr && i < outputs; ++i) row[i] += bias[i];
                   relu_in_place(slope, row, outputs);
                 }
               });
}

class Dense final : public DenseKernel {
 public:
  explicit Dense(const DenseDesc& desc) : desc_(desc), blocked_(desc) {}

  void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
               Tensor& y) override {
    if (const LayoutPtr layout = blocked_.serves(x))
      blocked_.forward(ctx, layout, x, w, y);
    else
      gemm(ctx, Trans::kNo, desc_.weight_is_kn ? Trans::kNo : Trans::kYes, desc_.rows,
           desc_.outputs, desc_.inputs, 1, x, w, 0, y);
    if (desc_.relu)
      add_bias_and_relu(ctx, desc_.outputs, b, *desc_.relu, y);
    else if (b != nullptr)
      add_bias(ctx, desc_.outputs, 1, *b, y);
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy, Tensor* dx,
                Tensor* dw, Tensor* db) override {
    const auto [m, k, n, weight_is_kn, overwrites_dw, relu] = desc_;
    const float beta = overwrites_dw ? 0 : 1;
    if (db != nullptr) add_bias_gradient(ctx, n, 1, dy, *db);
    if (const LayoutPtr layout = blocked_.serves(x)) {
      if (dw != nullptr) blocked_.backward_weights(ctx, layout, x, dy, *dw);
      if (dx != nullptr) blocked_.backward_data(ctx, layout, w, dy, *dx);
      return;
    }
    if (dw != nullptr && weight_is_kn)
      gemm(ctx, Trans::kYes, Trans::kNo, k, n, m, 1, x, dy, beta, *dw);
    if (dw != nullptr && !weight_is_kn)
      gemm(ctx, Trans::kYes, Trans::kNo, n, k, m, 1, dy, x, beta, *dw);
    if (dx != nullptr)
      gemm(ctx, Trans::kNo, weight_is_kn ? Trans::kYes : Trans::kNo, m, k, n, 1, dy, w, 0, *dx);
  }

 private:
  DenseDesc desc_;
  BlockedDense blocked_;  // for an x in blocks of channels
};

}  // namespace

const DenseImpl kDense{"plain", serves_all<DenseDesc>, make_kernel<Dense, DenseKernel, DenseDesc>};

void gemm(Context& ctx, Trans trans_a, Trans trans_b, std::int64_t m, std::int64_t n,
          std::int64_t k, float alpha, const Tensor& a, const Tensor& b, float beta, Tensor& c) {
  CHECK(a.count() == m * k && b.count() == k * n && c.count() == m * n)
      << a.shape().str() << " times " << b.shape().str() << " to " << c.shape().str() << " as M "
      << m << " N " << n << " K " << k;
  sgemm_split(ctx.threads(), m, n, k, alpha, {trans_a, a.in(), trans_a == Trans::kYes ? m : k},
              {trans_b, b.in(), trans_b == Trans::kYes ? k : n}, beta,
              beta == 0 ? c.out() : c.mut(), n);
}

}  // namespace shoal::ops::cpu
