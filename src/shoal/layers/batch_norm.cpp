// BatchNorm layer: normalizes each channel by a mean and a variance.
#include <algorithm>
#include <optional>

#include "shoal/base/log.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/normalize.h"
#include "shoal/ops/vector.h"

namespace shoal {
namespace {

// (x - mean) / sqrt(variance + eps) by channel, with the batch's own statistics or, if
// use_global_stats (unset: in phase TEST), with running ones. Scale does a scale and a shift, but
// with scale_bias (NVIDIA's fork) or use_weight_bias (Intel's) the layer has them itself.
//   bottom[0], top[0] (N, C, S...); one axis counts as one channel. In place works.
//   params: running sums of mean (C) and variance (C), and how much the sums hold (1); the
//   statistics are sums / factor, 0 if it is 0. With a scale of its own two more: scale (C) and
//   shift (C), which Intel's bias_term: false leaves out.
// Each forward with batch statistics: factor = factor f + 1, sum = sum f + the batch's value, the
// variance's times m / (m - 1) with m = N S; f is moving_average_fraction. These
// params are not learned: their gradients are left alone. Source: Caffe's BatchNormLayer.
//
// Does the work of the Scale behind it, and of the ReLU behind that, in the same passes over
// memory.
class BatchNorm final : public Layer {
 public:
  using Layer::Layer;
  bool can_be_in_place() const override { return true; }
  float default_lr_mult(int of) const override { return of < kSums ? 0 : 1; }
  Reads reads() const override {
    return {.bottom_data = !global_ && !in_place_, .top_data = false};
  }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }
  // The host reads how much the running sums hold.
  Replays replays() const override { return {.forward = !global_}; }
  std::vector<ops::Choice> choices() const override { return op_.choices(); }

  void setup(Context& ctx, Bottoms bottoms, Tops tops) override {
    const BatchNormParameter& norm = param().batch_norm_param();
    global_ = norm.has_use_global_stats() ? norm.use_global_stats() : !training();
    in_place_ = bottoms[0] == tops[0];
    for (int i = 0; i < std::min(param().param_size(), kSums); ++i)
      if (param().param(i).has_lr_mult() && param().param(i).lr_mult() != 0)
        throw config_error(param(), "param { lr_mult: ", param().param(i).lr_mult(),
                           " }: the running statistics are not learned; give 0 or nothing");
    channels_ = channels_of(bottoms[0]->shape());
    add_constant_param(Shape{channels_}, 0);
    add_constant_param(Shape{channels_}, 0);
    add_constant_param(Shape{1}, 0);
    add_scale(ctx);
    mean_.reshape(Shape{channels_});
    variance_.reshape(Shape{channels_});
  }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    const Shape bottom = bottoms[0]->shape();
    if (bottom.axes() == 0 || channels_of(bottom) != channels_)
      throw config_error(param(), "was made for ", channels_, " channels; the bottom is now ",
                         bottom.str());
    in_place_ = bottoms[0] == tops[0];
    tops[0]->reshape(bottom);
    op_.select("batch_norm", ops::backend(ctx).batch_norm,
               {.images = bottom[0],
                .channels = channels_,
                .inner = bottom.count() / std::max<std::int64_t>(1, bottom[0] * channels_),
                .eps = param().batch_norm_param().eps()},
               ctx, engine_of(param()));
  }

  TakesOver take_over(Context&, const Layer& next, bool) override {
    const ScaleParameter& scale = next.param().scale_param();
    const float slope = next.param().relu_param().negative_slope();
    if (next.param().type() == "Scale" && scale_ == nullptr && !slope_ && scale.axis() == 1 &&
        scale.num_axes() == 1 && next.params()[0]->shape() == Shape{channels_}) {
      scale_ = &next;
      return TakesOver::kBoth;
    }
    if (next.param().type() == "ReLU" && !slope_ && slope >= 0) {
      slope_ = slope;
      // backward finds by what it normalized which numbers passed, and needs that with running
      // statistics for nothing else.
      return global_ ? TakesOver::kForward : TakesOver::kBoth;
    }
    return TakesOver::kNothing;
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    const ops::AfterNorm after{.factor = scale_param(0),
                               .shift = scale_param(1),
                               .slope = slope_,
                               .normalized = keeps() ? &kept_ : nullptr};
    if (keeps()) kept_.reshape(tops[0]->shape());
    if (global_) {
      const float factor = params()[2]->data.host()[0];
      read_running(ctx, factor == 0 ? 0 : 1 / factor, params()[0]->data, mean_);
      read_running(ctx, factor == 0 ? 0 : 1 / factor, params()[1]->data, variance_);
      op_->forward_global(ctx, bottoms[0]->data, mean_, variance_, after, tops[0]->data);
      return;
    }
    const ops::RunningSums running{&params()[0]->data, &params()[1]->data, &params()[2]->data,
                                   param().batch_norm_param().moving_average_fraction()};
    op_->forward_batch(ctx, bottoms[0]->data, mean_, variance_, running, after, tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    const ops::AfterNormBackward after{.factor = scale_param(0),
                                       .shift = scale_param(1),
                                       .slope = global_ ? std::optional<float>() : slope_,
                                       .g_factor = scale_gradient(0),
                                       .g_shift = scale_gradient(1)};
    if (global_ && !training() && after.g_factor.tensor != nullptr)
      return ctx.fail(
          {Code::kConfig, str("in phase TEST the input of '", scale_->name(),
                              "' is not kept, so its params can have no gradient; give that layer "
                              "param { lr_mult: 0 } for each of its params")});
    const Tensor* const bottom = global_ ? nullptr : &bottoms[0]->data;
    const ops::NormInput input{keeps() ? &kept_ : bottom, keeps()};
    Tensor* const gradient = propagate[0] ? &bottoms[0]->grad : nullptr;
    if (gradient == nullptr && scale_ == nullptr) return;
    if (global_)
      op_->backward_global(ctx, input, mean_, variance_, tops[0]->grad, after, gradient);
    else
      op_->backward_batch(ctx, input, mean_, variance_, tops[0]->grad, after, gradient);
  }

 private:
  static std::int64_t channels_of(const Shape& shape) { return shape.axes() < 2 ? 1 : shape[1]; }

  static void read_running(Context& ctx, float scale, const Tensor& sum, Tensor& value) {
    ops::copy(ctx, sum, value);
    ops::scale(ctx, scale, value);
  }

  // Returns whether backward needs the normalized numbers from memory of the layer's own: where the
  // top took the bottom's place, or the bottom is not kept.
  bool keeps() const { return global_ ? scale_ != nullptr && training() : in_place_; }
  // The factor, 0, or the shift, 1, of the Scale whose work this layer does, or of this layer.
  const Blob* scale_blob(int i) const {
    const std::size_t at = static_cast<std::size_t>(first_ + i);
    return scale_ != nullptr && at < scale_->params().size() ? scale_->params()[at].get() : nullptr;
  }
  const Tensor* scale_param(int i) const {
    const Blob* const blob = scale_blob(i);
    return blob != nullptr ? &blob->data : nullptr;
  }
  ops::SumInto scale_gradient(int i) const {
    if (scale_blob(i) == nullptr || !scale_->param_propagates(first_ + i)) return {};
    return {&scale_->params()[static_cast<std::size_t>(first_ + i)]->grad, true};
  }

  void add_scale(Context& ctx) {
    const BatchNormParameter& norm = param().batch_norm_param();
    // In Intel's fork use_weight_bias is true unless the file says no, but its files have a Scale
    // behind the layer, which that program joins with it.
    const bool intels = norm.use_weight_bias();
    if (!norm.scale_bias() && !intels) {
      if (norm.has_scale_filler() || norm.has_filler() || norm.has_bias_filler())
        LOG(WARNING) << layer_place(param())
                     << ": the fillers of batch_norm_param have no effect without scale_bias: true "
                        "(NVIDIA's fork) or use_weight_bias: true (Intel's)";
      return;
    }
    FillerParameter one;
    one.set_value(1);
    const FillerParameter& filler = norm.has_scale_filler() ? norm.scale_filler()
                                    : norm.has_filler()     ? norm.filler()
                                                            : one;
    add_param(ctx, Shape{channels_}, filler);
    if (!intels || norm.bias_term()) add_param(ctx, Shape{channels_}, norm.bias_filler());
    scale_ = this;
    first_ = kSums;
  }

  static constexpr int kSums = 3;  // params that are no scale

  bool global_ = false, in_place_ = false;
  // Layers whose work this one does.
  const Layer* scale_ = nullptr;  // this layer, where it has a scale of its own
  int first_ = 0;                 // param of the scale
  std::optional<float> slope_;    // of a ReLU
  std::int64_t channels_ = 0;
  Tensor mean_, variance_;  // those that the last forward used
  Tensor kept_;             // normalized numbers
  SelectedKernel<ops::BatchNormDesc, ops::BatchNormKernel> op_;
};

}  // namespace

std::unique_ptr<Layer> make_BatchNorm(const LayerParameter& param) {
  return std::make_unique<BatchNorm>(param);
}

}  // namespace shoal
