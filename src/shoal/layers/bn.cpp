// BN layer, of two forks: normalizes each channel, and scales and shifts it.
#include "shoal/base/log.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/normalize.h"
#include "shoal/ops/vector.h"

namespace shoal {
namespace {

// The base of both: y = (x - mean) / sqrt(variance + eps) slope + bias by channel.
//   bottom[0], top[0] (N, C, S...); in place works
//   params: slope (1, C, 1, 1), bias (1, C, 1, 1), and those of a subclass
class ScaledNorm : public Layer {
 public:
  using Layer::Layer;
  bool can_be_in_place() const override { return true; }
  Reads reads() const override { return {.bottom_data = !keeps(), .top_data = false}; }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }
  std::vector<ops::Choice> choices() const override { return op_.choices(); }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    const Shape bottom = bottoms[0]->shape();
    if (bottom.axes() < 2 || bottom[1] != channels_)
      throw config_error(param(), "was made for ", channels_, " channels; the bottom is now ",
                         bottom.str());
    in_place_ = bottoms[0] == tops[0];
    tops[0]->reshape(bottom);
    op_.select("batch_norm", ops::backend(ctx).batch_norm,
               {.images = bottom[0], .channels = channels_, .inner = bottom.count(2), .eps = eps_},
               ctx, engine_of(param(), param().bn_param().engine()));
  }

 protected:
  void make_scale(Context& ctx, const Shape& bottom, const FillerParameter* slope,
                  const FillerParameter& bias, float eps) {
    if (bottom.axes() < 2)
      throw config_error(param(), "the bottom must have 2 axes or more (N, C, ...), not ",
                         bottom.str());
    channels_ = bottom[1];
    eps_ = eps;
    FillerParameter one;
    one.set_value(1);
    add_param(ctx, by_channel(), slope != nullptr ? *slope : one);
    add_param(ctx, by_channel(), bias);
    mean_.reshape(Shape{channels_});
    variance_.reshape(Shape{channels_});
  }
  Shape by_channel() const { return {1, channels_, 1, 1}; }

  void forward_batch(Context& ctx, Bottoms bottoms, Tops tops) {
    if (keeps()) kept_.reshape(tops[0]->shape());
    op_->forward_batch(ctx, bottoms[0]->data, mean_, variance_, {}, after(keeps()), tops[0]->data);
  }
  void forward_global(Context& ctx, Bottoms bottoms, Tops tops) {
    op_->forward_global(ctx, bottoms[0]->data, mean_, variance_, after(false), tops[0]->data);
  }
  void backward_batch(Context& ctx, Tops tops, bool propagate, Bottoms bottoms) {
    const ops::AfterNormBackward after{
        .factor = &params()[0]->data, .g_factor = gradient(0), .g_shift = gradient(1)};
    op_->backward_batch(ctx, {keeps() ? &kept_ : &bottoms[0]->data, keeps()}, mean_, variance_,
                        tops[0]->grad, after, propagate ? &bottoms[0]->grad : nullptr);
  }
  void backward_global(Context& ctx, Tops tops, Bottoms bottoms) {
    op_->backward_global(ctx, {}, mean_, variance_, tops[0]->grad, {.factor = &params()[0]->data},
                         &bottoms[0]->grad);
  }
  ops::SumInto gradient(int of) const {
    if (!param_propagates(of)) return {};
    return {&params()[static_cast<std::size_t>(of)]->grad, true};
  }
  // Returns whether backward has the normalized numbers from memory of the layer's own, and not
  // from the bottom.
  bool keeps() const { return in_place_; }

  Tensor mean_, variance_;  // (C)
  std::int64_t channels_ = 0;

 private:
  ops::AfterNorm after(bool keep) {
    return {.factor = &params()[0]->data,
            .shift = &params()[1]->data,
            .slope = {},
            .normalized = keep ? &kept_ : nullptr};
  }
  float eps_ = 0;
  bool in_place_ = false;
  Tensor kept_;  // normalized numbers
  SelectedKernel<ops::BatchNormDesc, ops::BatchNormKernel> op_;
};

// PSPNet's: TRAIN normalizes by the batch and keeps running statistics, TEST by these; with
// `frozen` TRAIN does as TEST, and no param learns.
//   two more params, (1, C, 1, 1) each: running mean and variance, momentum times themselves plus
//   1 - momentum times the batch's (biased) after each forward pass by the batch
// In phase TEST and with `frozen` only the bottom has a gradient. Source: PSPNet's BNLayer.
class RunningNorm final : public ScaledNorm {
 public:
  explicit RunningNorm(const LayerParameter& layer)
      : ScaledNorm(layer), global_(layer.bn_param().frozen() || !training()) {}
  float default_lr_mult(int of) const override {
    return of < 2 && !param().bn_param().frozen() ? 1 : 0;
  }
  Reads reads() const override { return {.bottom_data = !global_ && !keeps(), .top_data = false}; }

  void setup(Context& ctx, Bottoms bottoms, Tops) override {
    const BNParameter& bn = param().bn_param();
    make_scale(ctx, bottoms[0]->shape(), bn.has_slope_filler() ? &bn.slope_filler() : nullptr,
               bn.bias_filler(), bn.eps());
    add_constant_param(by_channel(), 0);
    add_constant_param(by_channel(), bn.frozen() ? 1 : 0);
  }
  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (global_) {
      ops::copy(ctx, params()[2]->data, mean_);
      ops::copy(ctx, params()[3]->data, variance_);
      return forward_global(ctx, bottoms, tops);
    }
    forward_batch(ctx, bottoms, tops);
    const float momentum = param().bn_param().momentum();
    Tensor* const running[] = {&params()[2]->data, &params()[3]->data};
    ops::scale_all(ctx, momentum, running);
    ops::axpy(ctx, 1 - momentum, mean_, *running[0]);
    ops::axpy(ctx, 1 - momentum, variance_, *running[1]);
  }
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (!global_) return backward_batch(ctx, tops, propagate[0], bottoms);
    if (propagate[0]) backward_global(ctx, tops, bottoms);
  }

 private:
  bool global_;
};

// SegNet's, LEARN: normalizes by the batch in both phases; eps is 1e-9.
class BatchOnlyNorm final : public ScaledNorm {
 public:
  using ScaledNorm::ScaledNorm;
  void setup(Context& ctx, Bottoms bottoms, Tops) override {
    const BNParameter& bn = param().bn_param();
    make_scale(ctx, bottoms[0]->shape(), bn.has_scale_filler() ? &bn.scale_filler() : nullptr,
               bn.shift_filler(), 1e-9f);
  }
  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    forward_batch(ctx, bottoms, tops);
  }
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    backward_batch(ctx, tops, propagate[0], bottoms);
  }
};

// SegNet's, INFERENCE: scale and shift alone, which then hold the statistics, too.
class ScaleOnly final : public Layer {
 public:
  using Layer::Layer;
  bool can_be_in_place() const override { return true; }
  // A copy is kept where the top overwrites the bottom.
  Reads reads() const override { return {.bottom_data = !in_place_, .top_data = false}; }

  void setup(Context& ctx, Bottoms bottoms, Tops) override {
    const Shape& bottom = bottoms[0]->shape();
    if (bottom.axes() < 2)
      throw config_error(param(), "the bottom must have 2 axes or more (N, C, ...), not ",
                         bottom.str());
    const BNParameter& bn = param().bn_param();
    FillerParameter one;
    one.set_value(1);
    add_param(ctx, {1, bottom[1], 1, 1}, bn.has_scale_filler() ? bn.scale_filler() : one);
    add_param(ctx, {1, bottom[1], 1, 1}, bn.shift_filler());
  }
  void reshape(Context&, Bottoms bottoms, Tops tops) override {
    const Shape bottom = bottoms[0]->shape();
    const std::int64_t channels = params()[0]->shape()[1];
    if (bottom.axes() < 2 || bottom[1] != channels)
      throw config_error(param(), "was made for ", channels, " channels; the bottom is now ",
                         bottom.str());
    in_place_ = bottoms[0] == tops[0];
    tops[0]->reshape(bottom);
    dims_ = {.outer = bottom[0], .dim = channels, .inner = bottom.count(2)};
  }
  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (in_place_) {
      kept_.reshape(bottoms[0]->shape());
      ops::copy(ctx, bottoms[0]->data, kept_);
    }
    ops::scale_and_shift(ctx, dims_, bottoms[0]->data, params()[0]->data, &params()[1]->data,
                         tops[0]->data);
  }
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    const auto into = [&](int of) -> ops::SumInto {
      if (!param_propagates(of)) return {};
      return {&params()[static_cast<std::size_t>(of)]->grad, true};
    };
    ops::scale_backward(ctx, dims_, tops[0]->grad, in_place_ ? kept_ : bottoms[0]->data,
                        params()[0]->data, propagate[0] ? &bottoms[0]->grad : nullptr, into(0),
                        into(1));
  }

 private:
  ops::BroadcastDims dims_;
  bool in_place_ = false;
  Tensor kept_;
};

enum class Fork { kPspNet, kSegNet };

// Tells the two layers apart by their fields, else by the numbers of params of the prototxt.
Fork fork_of(const LayerParameter& layer) {
  const BNParameter& bn = layer.bn_param();
  const bool psp = bn.has_slope_filler() || bn.has_bias_filler() || bn.has_momentum() ||
                   bn.has_eps() || bn.has_frozen() || bn.has_engine();
  const bool seg = bn.has_scale_filler() || bn.has_shift_filler() || bn.has_bn_mode();
  if (psp && seg)
    throw config_error(layer,
                       "bn_param mixes fields of two layers: slope_filler, bias_filler, "
                       "momentum, eps, frozen and engine are PSPNet's, scale_filler, "
                       "shift_filler and bn_mode SegNet's; drop those of one");
  if (psp != seg) return psp ? Fork::kPspNet : Fork::kSegNet;
  const bool four = layer.blobs_size() == 4 || layer.param_size() > 2;
  if (four || layer.blobs_size() == 2) {
    LOG(INFO) << layer_place(layer) << ": is taken for the BN of " << (four ? "PSPNet" : "SegNet")
              << "'s fork, by the number of its blobs";
    return four ? Fork::kPspNet : Fork::kSegNet;
  }
  throw config_error(layer,
                     "nothing says which BN this is: give bn_param { frozen: false } for "
                     "PSPNet's (4 blobs, running statistics) or bn_param { bn_mode: LEARN } "
                     "for SegNet's (2 blobs, the statistics of each batch)");
}

}  // namespace

std::unique_ptr<Layer> make_BN(const LayerParameter& param) {
  if (fork_of(param) == Fork::kPspNet) return std::make_unique<RunningNorm>(param);
  if (param.bn_param().bn_mode() == BNParameter::INFERENCE)
    return std::make_unique<ScaleOnly>(param);
  return std::make_unique<BatchOnlyNorm>(param);
}

}  // namespace shoal
