// Deconvolution layer: Convolution's backward pass as a forward pass.
#include <algorithm>
#include <utility>

#include "shoal/layers/window.h"
#include "shoal/ops/gemm.h"

namespace shoal {
namespace {

// Convolution's backward as a forward: each bottom number spreads over a window of the top, times
// the weight.
//   bottom[i] (N..., C, I...)   top[i] (N..., K, O...)
//   O = stride (I - 1) + dilation (kernel - 1) + 1 - 2 pad
//   params: weight (C, K / group, kernel...), bias (K)
// The op is described as the convolution that makes the bottom from the top. Source: Caffe's
// DeconvolutionLayer.
class Deconvolution final : public ConvolutionBase {
 public:
  using ConvolutionBase::ConvolutionBase;
  // The convolution goes the other way: what it reads forward is this layer's top.
  std::vector<ops::Choice> choices() const override {
    std::vector<ops::Choice> all = conv_.choices();
    for (ops::Choice& choice : all) {
      KernelNeeds& needs = choice.needs;
      std::swap(needs.input, needs.output);
      // Both passes may call both of the kernel's.
      needs.workspace = std::max(needs.workspace, needs.backward_workspace.value_or(0));
      needs.backward_workspace.reset();
    }
    return all;
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    for (std::size_t i = 0; i < bottoms.size(); ++i) {
      Tensor& top = tops[i]->data;
      conv_->backward(ctx, top, weight(), bottoms[i]->data, &top, nullptr, nullptr);
      if (has_bias_) ops::add_bias(ctx, desc_.channels, desc_.in_count(), *bias(), top);
    }
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    for (std::size_t i = 0; i < bottoms.size(); ++i) {
      const Tensor& top = tops[i]->grad;
      if (bias_grad() != nullptr)
        ops::add_bias_gradient(ctx, desc_.channels, desc_.in_count(), top, *bias_grad());
      if (weight_grad() != nullptr)
        conv_->backward(ctx, top, weight(), bottoms[i]->data, nullptr, weight_grad(), nullptr);
      if (propagate[i]) conv_->forward(ctx, top, weight(), nullptr, bottoms[i]->grad);
    }
  }

 protected:
  bool transposed() const override { return true; }
  std::vector<std::int64_t> slide(const Shape& bottom,
                                  std::vector<ops::WindowAxis>& axes) const override {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      ops::WindowAxis& axis = axes[i];
      axis.out = bottom[channel_axis_ + 1 + static_cast<int>(i)];
      axis.in = axis.stride * (axis.out - 1) + extent(axis) - 2 * axis.pad;
      if (axis.in < 1)
        throw config_error(param(), "pad ", axis.pad, " leaves nothing of the top on spatial axis ",
                           i, ": stride ", axis.stride, " times (", axis.out, " - 1) plus ",
                           extent(axis), " less twice the padding; bottom: ", bottom.str());
      sizes.push_back(axis.in);
    }
    check_padded(param(), bottom, axes);
    return sizes;
  }
};

}  // namespace

std::unique_ptr<Layer> make_Deconvolution(const LayerParameter& param) {
  return std::make_unique<Deconvolution>(param);
}

}  // namespace shoal
