// Base class of the loss layers.
#pragma once

#include "shoal/layers/layer.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// top[0] is one number without axes, the loss. bottom[1] holds labels and gets no gradient; both
// may be otherwise in a subclass.
class LossLayer : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 2}; }
  float default_loss_weight(int top) const override { return top == 0 ? 1.0f : 0.0f; }
  bool makes_missing_top() const override { return true; }
  Propagates propagates(int bottom) const override {
    return bottom == 0 ? Propagates::kYes : Propagates::kRefuses;
  }
  Reads reads() const override { return {.bottom_data = true, .top_data = false}; }
  // forward looks at the labels on the host, and upstream() at a gradient if there is no weight.
  Replays replays() const override { return {.forward = false, .backward = loss_gradient(0) != 0}; }
  void reshape(Context&, Bottoms, Tops tops) override { tops[0]->reshape(Shape()); }

 protected:
  // Returns the gradient of the net's loss with respect to top[0]: the loss weight as it is scaled,
  // or, if the net gives it none, what the layer that reads the top left there.
  double upstream(Tops tops) const {
    const float weight = loss_gradient(0);
    return weight != 0 ? weight : tops[0]->grad.host()[0];
  }
};

// Returns how a loss is divided: by `normalization`, the old `normalize`, or else `otherwise`.
LossParameter::NormalizationMode normalization_of(const LossParameter& param,
                                                  LossParameter::NormalizationMode otherwise);
// Items of a batch that a loss may be divided by.
struct LossItems {
  std::int64_t all = 0, counted = 0, batch = 0;
};
// Returns the divisor of a loss, at least 1. FULL: all items; VALID: those counted; BATCH_SIZE: the
// batch; NONE: 1; PRE_FIXED (R-FCN's fork): param.pre_fixed_normalizer.
double loss_normalizer(const LossParameter& param, LossParameter::NormalizationMode mode,
                       const LossItems& items);
// Throws ConfigError where loss_param has a pre_fixed_normalizer that nothing can be divided by, or
// that its normalization does not use.
void check_loss_param(const LayerParameter& layer);
// Returns loss_param.ignore_label, if it is given.
std::optional<int> ignored_label(const LossParameter& param);

}  // namespace shoal
