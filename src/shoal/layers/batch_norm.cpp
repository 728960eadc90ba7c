// BatchNorm layer: normalizes each channel by a mean and a variance.
#include <algorithm>

#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/normalize.h"
#include "shoal/ops/vector.h"

namespace shoal {
namespace {

// (x - mean) / sqrt(variance + eps) by channel, with the batch's own statistics or, if
// use_global_stats (unset: in phase TEST), with running ones. No scale and shift: Scale does that.
//   bottom[0], top[0] (N, C, S...); one axis counts as one channel. In place works.
//   params: running sums of mean (C) and variance (C), and how much the sums hold (1); the
//   statistics are sums / factor, 0 if it is 0.
// Each forward with batch statistics: factor = factor f + 1, sum = sum f + the batch's value, the
// variance's times m / (m - 1) with m = N S; f is moving_average_fraction. The params
// are not learned: their gradients are left alone. Source: Caffe's BatchNormLayer.
class BatchNorm final : public Layer {
 public:
  using Layer::Layer;
  bool can_be_in_place() const override { return true; }
  float default_lr_mult(int) const override { return 0; }
  Reads reads() const override {
    return {.bottom_data = !global_ && !in_place_, .top_data = false};
  }
  // The host reads how much the running sums hold.
  Replays replays() const override { return {.forward = !global_}; }
  std::vector<ops::Choice> choices() const override { return op_.choices(); }

  void setup(Context&, Bottoms bottoms, Tops tops) override {
    const BatchNormParameter& norm = param().batch_norm_param();
    global_ = norm.has_use_global_stats() ? norm.use_global_stats() : !training();
    in_place_ = bottoms[0] == tops[0];
    for (const ParamSpec& spec : param().param())
      if (spec.has_lr_mult() && spec.lr_mult() != 0)
        throw config_error(param(), "param { lr_mult: ", spec.lr_mult(),
                           " }: the running statistics are not learned; give 0 or nothing");
    channels_ = channels_of(bottoms[0]->shape());
    add_constant_param(Shape{channels_}, 0);
    add_constant_param(Shape{channels_}, 0);
    add_constant_param(Shape{1}, 0);
    mean_.reshape(Shape{channels_});
    variance_.reshape(Shape{channels_});
    one_.reshape(Shape{1});
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

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (global_) {
      const float factor = params()[2]->data.host()[0];
      read_running(ctx, factor == 0 ? 0 : 1 / factor, params()[0]->data, mean_);
      read_running(ctx, factor == 0 ? 0 : 1 / factor, params()[1]->data, variance_);
      op_->forward_global(ctx, bottoms[0]->data, mean_, variance_, tops[0]->data);
      return;
    }
    op_->forward_batch(ctx, bottoms[0]->data, mean_, variance_, tops[0]->data);
    const double count = static_cast<double>(op_.desc().images * op_.desc().inner);
    ops::fill(ctx, 1, one_);
    add_to_running(ctx, 1, mean_, params()[0]->data);
    add_to_running(ctx, count > 1 ? static_cast<float>(count / (count - 1)) : 1, variance_,
                   params()[1]->data);
    add_to_running(ctx, 1, one_, params()[2]->data);
    if (!in_place_) return;
    kept_.reshape(tops[0]->shape());
    ops::copy(ctx, tops[0]->data, kept_);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (!propagate[0]) return;
    if (global_)
      op_->backward_global(ctx, variance_, tops[0]->grad, bottoms[0]->grad);
    else
      op_->backward_batch(ctx, in_place_ ? kept_ : bottoms[0]->data, in_place_, mean_, variance_,
                          tops[0]->grad, bottoms[0]->grad);
  }

 private:
  static std::int64_t channels_of(const Shape& shape) { return shape.axes() < 2 ? 1 : shape[1]; }

  static void read_running(Context& ctx, float scale, const Tensor& sum, Tensor& value) {
    ops::copy(ctx, sum, value);
    ops::scale(ctx, scale, value);
  }
  void add_to_running(Context& ctx, float scale, const Tensor& value, Tensor& sum) const {
    ops::scale(ctx, param().batch_norm_param().moving_average_fraction(), sum);
    ops::axpy(ctx, scale, value, sum);
  }

  bool global_ = false, in_place_ = false;
  std::int64_t channels_ = 0;
  Tensor mean_, variance_;  // those that the last forward used
  Tensor one_;
  // the top as forward made it, when it took the bottom's place: later layers may change it there
  Tensor kept_;
  SelectedKernel<ops::BatchNormDesc, ops::BatchNormKernel> op_;
};

}  // namespace

std::unique_ptr<Layer> make_BatchNorm(const LayerParameter& param) {
  return std::make_unique<BatchNorm>(param);
}

}  // namespace shoal
