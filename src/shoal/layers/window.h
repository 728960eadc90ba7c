// Reads the spatial part of convolution_param, for Convolution, Deconvolution and Im2col, and is
// the base of the first two.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/window.h"

namespace shoal {

// Reads kernel, stride, pad and dilation of each of `axes` spatial axes; in and out are left at 1.
// kernel_size, stride, pad and dilation hold one value for all axes or one each; kernel_h and
// kernel_w and their like are for two axes. Throws ConfigError.
std::vector<ops::WindowAxis> read_window(const LayerParameter& param, int axes);

// Returns how many inputs a window spans from its first tap to its last.
inline std::int64_t extent(const ops::WindowAxis& axis) {
  return axis.dilation * (axis.kernel - 1) + 1;
}

// Sets in and out of each axis for a bottom's spatial sizes. Throws ConfigError where the window is
// larger than the padded input.
void slide_over(const LayerParameter& param, const Shape& bottom, int first_spatial,
                std::vector<ops::WindowAxis>& axes);

// Throws ConfigError where the padded plane has more elements than a blob may have.
void check_padded(const LayerParameter& param, const Shape& bottom,
                  std::span<const ops::WindowAxis> axes);

// The base of Convolution and its transpose: weight, bias, the description of the op as a
// convolution, and the kernel for it.
class ConvolutionBase : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.max_bottoms = Arity::kAny, .max_tops = Arity::kAny, .paired = true};
  }
  Reads reads() const override { return {.bottom_data = true, .top_data = false}; }
  std::int64_t multiply_adds() const override { return param().top_size() * desc_.multiply_adds(); }
  void setup(Context& ctx, Bottoms bottoms, Tops tops) override;
  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override;
  std::vector<ops::Choice> choices() const override { return conv_.choices(); }
  void tune(Context& ctx, Backward passes) override;
  bool leave_winograd(Context& ctx) override;

 protected:
  // Chooses the kernel for desc_.
  void choose(Context& ctx);
  // Is called when conv_ is another kernel.
  virtual void kernel_changed() {}
  // Sets the axes' in and out as the convolution has them, for a bottom of this layer; returns the
  // top's spatial sizes.
  virtual std::vector<std::int64_t> slide(const Shape& bottom,
                                          std::vector<ops::WindowAxis>& axes) const = 0;
  // Returns how many outputs and groups there are for so many channels of the bottom.
  struct Outputs {
    std::int64_t outputs = 0, groups = 1;
  };
  virtual Outputs outputs_for(std::int64_t channels) const;
  // Returns true for Deconvolution: the bottom is what the convolution makes.
  virtual bool transposed() const = 0;

  const Tensor& weight() const { return params()[0]->data; }
  const Tensor* bias() const { return has_bias_ ? &params()[1]->data : nullptr; }
  Tensor* weight_grad() const { return param_propagates(0) ? &params()[0]->grad : nullptr; }
  Tensor* bias_grad() const {
    return has_bias_ && param_propagates(1) ? &params()[1]->grad : nullptr;
  }

  int channel_axis_ = 1;
  bool has_bias_ = true;
  ops::ConvDesc desc_;
  SelectedKernel<ops::ConvDesc, ops::ConvKernel> conv_;

 private:
  std::optional<ops::PassSet> tuned_;  // the passes that the net calls, once the kernel was tuned
};

}  // namespace shoal
