// Softmax along one axis.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/ops/op.h"
#include "shoal/tensor/context.h"

namespace shoal::ops {

// Softmax of x (outer, C, inner): y = exp(x - max) / sum over C, of the same shape. x and y may be
// one tensor, and dx and dy.
struct SoftmaxDesc {
  std::int64_t outer = 0, channels = 0, inner = 0;
  bool operator==(const SoftmaxDesc&) const = default;
  bool is_empty() const { return outer * channels * inner == 0; }
};

class SoftmaxKernel : public Kernel {
 public:
  // Overwrites y.
  virtual void forward(Context& ctx, const Tensor& x, Tensor& y) = 0;
  // Overwrites dx.
  virtual void backward(Context& ctx, const Tensor& y, const Tensor& dy, Tensor& dx) = 0;
};
using SoftmaxImpl = Impl<SoftmaxDesc, SoftmaxKernel>;

}  // namespace shoal::ops
