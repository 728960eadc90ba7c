// Products of matrices, the bias that goes with them, and the inner product layer made of both. All
// matrices are row-major.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "shoal/ops/op.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

enum class Trans { kNo, kYes };

// Computes c = alpha op(a) op(b) + beta c, where op(a) is (M, K), op(b) is (K, N), c is (M, N); op
// transposes what is stored. Counts must agree (CHECK); the tensors' own shapes do not matter. With
// beta 0 what c held before does not matter, NaN included.
void gemm(Context& ctx, Trans trans_a, Trans trans_b, std::int64_t m, std::int64_t n,
          std::int64_t k, float alpha, const Tensor& a, const Tensor& b, float beta, Tensor& c);

// Adds b (channels) to y (outer, channels, inner).
void add_bias(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& b, Tensor& y);
// Adds to db (channels) the sum of dy (outer, channels, inner) over outer and inner.
void add_bias_gradient(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& dy,
                       Tensor& db);
// Backward through a ReLU: dy, the gradient of its top y (outer, channels, inner), becomes that of
// its bottom, slope dy where y is not above 0. Where it takes no pass of its own, also adds its
// sums to db as above, and returns true. db null: no sums.
bool relu_and_bias_gradient(Context& ctx, float slope, std::int64_t channels, std::int64_t inner,
                            const Tensor& y, Tensor& dy, Tensor* db);

struct DenseDesc {
  std::int64_t rows = 0;       // M, items of the batch
  std::int64_t inputs = 0;     // K
  std::int64_t outputs = 0;    // N
  bool weight_is_kn = false;   // w is (K, N), not (N, K)
  bool overwrites_dw = false;  // backward overwrites dw instead of adding to it
  // The slope below 0 of a ReLU that forward applies to y; none: y is the bare sum. backward takes
  // the gradient of the bare sum in either case.
  std::optional<float> relu{};
  bool operator==(const DenseDesc&) const = default;
  bool is_empty() const { return rows == 0; }
};

// Computes y (M, N) = x (M, K) op(w) + b (N).
class DenseKernel : public Kernel {
 public:
  // Overwrites y. b may be null.
  virtual void forward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor* b,
                       Tensor& y) = 0;
  // Overwrites dx, adds to dw (unless the description says otherwise) and db; any of them may be
  // null. x is not read if dw is null, w not if dx is.
  virtual void backward(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& dy,
                        Tensor* dx, Tensor* dw, Tensor* db) = 0;
};
using DenseImpl = Impl<DenseDesc, DenseKernel>;

}  // namespace shoal::ops
