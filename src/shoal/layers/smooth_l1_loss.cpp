// SmoothL1Loss and SmoothL1LossOHEM layers: losses of boxes that far outliers do not govern.
#include <optional>

#include "shoal/base/log.h"
#include "shoal/layers/loss.h"
#include "shoal/ops/instance_loss.h"
#include "shoal/ops/reduce.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// Sum over all numbers of outside f(inside (a - b)), divided; f(d) = 0.5 (sigma d)^2 where
// |d| < 1 / sigma^2 and |d| - 0.5 / sigma^2 elsewhere.
//   bottom[0] a (N, C, ...)   bottom[1] b, as many numbers; either may have a gradient
//   the rest: weights of as many numbers, without gradient
//   top[0] one number
// Two layers have the name SmoothL1Loss; its bottoms, tops and fields tell which:
//   Fast R-CNN's: 2 bottoms, or 4 (inside and outside); divided by N (loss_param's NONE: by 1)
//   R-FCN's: 2 bottoms, or 3 (inside); sigma 1; divided as loss_param says: by N times the places
//     (FULL, VALID), by N (BATCH_SIZE), by pre_fixed_normalizer (PRE_FIXED) or by 1 (NONE). top[1],
//     if asked for, is the loss of each instance, (N, 1, H, W); its gradient is not looked at.
// A layer with 3 bottoms, with 2 tops, or with 2 bottoms and a loss_param that says how to divide
// is R-FCN's, and SmoothL1LossOHEM always is. R-FCN's fork leaves the factor `inside` out of the
// gradient, which is the same for weights of 0 and 1. Sources: Girshick, "Fast R-CNN", 2015; Dai et
// al., "R-FCN", 2016.
class SmoothL1 final : public LossLayer {
 public:
  using LossLayer::LossLayer;
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 4, .max_tops = 2}; }
  Propagates propagates(int bottom) const override {
    return bottom < 2 ? Propagates::kYes : Propagates::kNothing;
  }
  Replays replays() const override {
    return {.forward = true, .backward = LossLayer::replays().backward};
  }

  void setup(Context&, Bottoms bottoms, Tops tops) override {
    const LossParameter& loss = param().loss_param();
    const bool divides = loss.has_normalization() || loss.has_normalize(),
               ohem = type() == "SmoothL1LossOHEM";
    by_instance_ =
        ohem || bottoms.size() == 3 || tops.size() == 2 || (bottoms.size() == 2 && divides);
    sigma_ = param().smooth_l1_loss_param().sigma();
    if (!(sigma_ > 0)) throw config_error(param(), "sigma is ", sigma_, "; it must be above 0");
    if (!by_instance_) {
      if (divides && loss.normalization() != LossParameter::NONE)
        LOG(INFO) << layer_place(param()) << ": Fast R-CNN's SmoothL1Loss divides by the items of '"
                  << bottoms[0]->name << "' whatever loss_param says; it is passed over";
      return;
    }
    if (bottoms.size() == 4)
      throw config_error(param(), "has ", bottoms.size(), " bottoms and ", tops.size(),
                         " tops; R-FCN's form has 2 or 3 bottoms, Fast R-CNN's 2 or 4 and 1 top");
    if (sigma_ != 1)
      throw config_error(param(), "sigma is ", sigma_,
                         ", which R-FCN's form of the layer does not have; with 2 or 4 bottoms, "
                         "one top and no loss_param SmoothL1Loss is Fast R-CNN's, which has it");
    if (!ohem)
      LOG(INFO) << layer_place(param())
                << ": its bottoms, tops or loss_param make it R-FCN's SmoothL1Loss";
  }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    LossLayer::reshape(ctx, bottoms, tops);
    const Shape& shape = bottoms[0]->shape();
    if (shape.axes() < (by_instance_ ? 2 : 1))
      throw config_error(param(), "bottom '", bottoms[0]->name, "' of shape ", shape.str(),
                         " needs axes for items and for the numbers of each");
    for (const Blob* other : bottoms) {
      if (other->shape().count() == shape.count() && other->shape()[0] == shape[0]) continue;
      throw config_error(param(), "bottom '", other->name, "' of shape ", other->shape().str(),
                         " and bottom '", bottoms[0]->name, "' of shape ", shape.str(),
                         " differ; each number of a box has its target and its weights");
    }
    items_ = shape[0];
    errors_.reshape(shape);
    if (by_instance_) channels_ = shape[1];
    if (tops.size() == 2)
      tops[1]->reshape(shape.axes() == 4 ? Shape{shape[0], 1, shape[2], shape[3]}
                                         : Shape{shape[0], 1, shape.count(2), 1});
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    ops::smooth_l1(ctx, sigma_, bottoms[0]->data, bottoms[1]->data, inside(bottoms),
                   outside(bottoms), errors_);
    ops::reduce_rows(ctx, ops::Reduce::kSum, static_cast<float>(1 / divisor()), errors_,
                     tops[0]->data);
    if (tops.size() == 2)
      ops::sum_channels(ctx, items_, channels_, places(), errors_, tops[1]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    const float scale = static_cast<float>(upstream(tops) / divisor());
    for (std::size_t i = 0; i < 2; ++i)
      if (propagate[i])
        ops::smooth_l1_backward(ctx, sigma_, i == 0 ? scale : -scale, bottoms[0]->data,
                                bottoms[1]->data, inside(bottoms), outside(bottoms),
                                bottoms[i]->grad);
  }

 private:
  static const Tensor* inside(Bottoms bottoms) {
    return bottoms.size() > 2 ? &bottoms[2]->data : nullptr;
  }
  static const Tensor* outside(Bottoms bottoms) {
    return bottoms.size() > 3 ? &bottoms[3]->data : nullptr;
  }
  std::int64_t places() const {
    return errors_.count() / std::max<std::int64_t>(items_ * channels_, 1);
  }
  double divisor() const {
    const LossParameter& loss = param().loss_param();
    const LossParameter::NormalizationMode mode = normalization_of(loss, LossParameter::VALID);
    if (mode == LossParameter::NONE) return 1;
    double by = static_cast<double>(items_);
    if (by_instance_ && (mode == LossParameter::FULL || mode == LossParameter::VALID))
      by *= static_cast<double>(places());
    if (by_instance_ && mode == LossParameter::PRE_FIXED) by = loss.pre_fixed_normalizer();
    return std::max(by, 1.0);
  }

  bool by_instance_ = false;
  float sigma_ = 1;
  std::int64_t items_ = 0, channels_ = 1;
  Tensor errors_;  // of each number
};

}  // namespace

std::unique_ptr<Layer> make_SmoothL1Loss(const LayerParameter& param) {
  return std::make_unique<SmoothL1>(param);
}
std::unique_ptr<Layer> make_SmoothL1LossOHEM(const LayerParameter& param) {
  return std::make_unique<SmoothL1>(param);
}

}  // namespace shoal
