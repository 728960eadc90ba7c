// Inner products of images in blocks of channels: by weights whose columns are in that order, where
// these are fewer numbers than the images.
#pragma once

#include <memory>
#include <vector>

#include "shoal/ops/blocked_channels.h"
#include "shoal/ops/gemm.h"

namespace shoal::ops::cpu {

class BlockedDense {
 public:
  explicit BlockedDense(const DenseDesc& desc) : desc_(desc) {}

  // Returns the layout of x if the functions below serve it, else null: float32 in whole blocks,
  // and fewer outputs than rows, so that it is less work to bring weights into the order of the
  // images than images into that of the weights.
  LayoutPtr serves(const Tensor& x) const;

  // Overwrites y with x op(w). w is brought into the order of x when it has changed.
  void forward(Context& ctx, const LayoutPtr& layout, const Tensor& x, const Tensor& w, Tensor& y);
  // Overwrites dx, in `layout`.
  void backward_data(Context& ctx, const LayoutPtr& layout, const Tensor& w, const Tensor& dy,
                     Tensor& dx);
  // Adds to dw, or overwrites it, as the description says.
  void backward_weights(Context& ctx, const LayoutPtr& layout, const Tensor& x, const Tensor& dy,
                        Tensor& dw) const;

 private:
  const float* packed(Context& ctx, const LayoutPtr& layout, const Tensor& w);

  DenseDesc desc_;
  std::vector<float> packed_;  // the weights in the order of `order_`, and what they were made of
  LayoutPtr order_;
  std::shared_ptr<Storage> packed_from_;
  std::uint64_t packed_version_ = 0;
};

}  // namespace shoal::ops::cpu
