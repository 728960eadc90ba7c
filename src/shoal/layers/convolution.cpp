// Convolution layer, over any number of spatial axes.
#include "shoal/base/log.h"
#include "shoal/layers/folded_weights.h"
#include "shoal/layers/window.h"
#include "shoal/ops/gemm.h"

namespace shoal {
namespace {

// The sum over each window of the bottom times a weight, for each output; any number of spatial
// axes, of bottoms with their tops.
//   bottom[i] (N..., C, I...)   top[i] (N..., K, O...)
//   O = floor((I + 2 pad - dilation (kernel - 1) - 1) / stride) + 1
//   params: weight (K, C / group, kernel...), bias (K)
// Does the work of the ReLU behind it. In phase TEST, where no layer has a backward pass, it also
// does that of a BatchNorm and a Scale in between, by weights that are scaled (FoldedWeights).
// Source: Caffe's ConvolutionLayer.
class Convolution : public ConvolutionBase {
 public:
  using ConvolutionBase::ConvolutionBase;

  TakesOver take_over(Context& ctx, const Layer& next, bool backward) override {
    if (!backward && !training() && channel_axis_ == 1 && folded_.add(next, desc_.outputs))
      return TakesOver::kForward;
    const float slope = next.param().relu_param().negative_slope();
    if (next.param().type() != "ReLU" || !(slope >= 0)) return TakesOver::kNothing;
    desc_.relu = slope;
    choose(ctx);
    return TakesOver::kBoth;
  }
  // The host looks whether params have changed.
  Replays replays() const override { return {.forward = folded_.empty()}; }
  Reads reads() const override { return {.bottom_data = true, .top_data = desc_.relu.has_value()}; }

  // Several bottoms add to one gradient.
  bool overwrite_gradient(Context& ctx, int of) override {
    if (of != 0 || param().bottom_size() != 1) return false;
    desc_.overwrites_dw = true;
    choose(ctx);
    return true;
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    const bool folds = !folded_.empty();
    if (folds) folded_.update(weight(), bias());
    for (std::size_t i = 0; i < bottoms.size(); ++i)
      conv_->forward(ctx, bottoms[i]->data, folds ? folded_.weight() : weight(),
                     folds ? &folded_.bias() : bias(), tops[i]->data);
    if (folds && conv_->keeps_weights()) folded_.drop_weight();
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    Tensor* bias = bias_grad();
    if (desc_.relu &&
        ops::relu_and_bias_gradient(ctx, *desc_.relu, desc_.outputs, desc_.out_count(),
                                    tops[0]->data, tops[0]->grad, bias))
      bias = nullptr;
    for (std::size_t i = 0; i < bottoms.size(); ++i)
      conv_->backward(ctx, bottoms[i]->data, weight(), tops[i]->grad,
                      propagate[i] ? &bottoms[i]->grad : nullptr, weight_grad(), bias);
  }

 protected:
  void kernel_changed() override { folded_.forget(); }  // it has not read the weights
  bool transposed() const override { return false; }
  std::vector<std::int64_t> slide(const Shape& bottom,
                                  std::vector<ops::WindowAxis>& axes) const override {
    slide_over(param(), bottom, channel_axis_ + 1, axes);
    std::vector<std::int64_t> sizes;
    for (const ops::WindowAxis& axis : axes) sizes.push_back(axis.out);
    return sizes;
  }

 private:
  FoldedWeights folded_;  // with layers whose work this one does
};

// A Convolution with as many groups and outputs as the bottom has channels; the prototxt may give
// either number, or none. Type ConvolutionDepthwise passes over other numbers, as its fork does;
// public nets have them. Type DepthwiseConvolution computes other groups that are given, as its
// fork does on a CPU, and throws ConfigError for another number of outputs.
class DepthwiseConvolution final : public Convolution {
 public:
  using Convolution::Convolution;

 private:
  Outputs outputs_for(std::int64_t channels) const override {
    const ConvolutionParameter& conv = param().convolution_param();
    const bool others = conv.has_num_output() && conv.num_output() != channels,
               groups = conv.has_group() && conv.group() != channels;
    if (type() == "ConvolutionDepthwise") {
      if (others || groups)
        LOG(WARNING) << layer_place(param()) << ": num_output and group are passed over, as in the "
                     << "fork; there is one of each for each channel of the bottom, " << channels;
      return {channels, channels};
    }
    if (groups) return Convolution::outputs_for(channels);
    if (others)
      throw config_error(param(), "num_output is ", conv.num_output(), "; a ", type(),
                         " has one group and one output for each channel of its bottom, ", channels,
                         "; type Convolution takes other numbers");
    return {channels, channels};
  }
};

}  // namespace

std::unique_ptr<Layer> make_Convolution(const LayerParameter& param) {
  return std::make_unique<Convolution>(param);
}
std::unique_ptr<Layer> make_ConvolutionDepthwise(const LayerParameter& param) {
  return std::make_unique<DepthwiseConvolution>(param);
}
std::unique_ptr<Layer> make_DepthwiseConvolution(const LayerParameter& param) {
  return std::make_unique<DepthwiseConvolution>(param);
}

}  // namespace shoal
