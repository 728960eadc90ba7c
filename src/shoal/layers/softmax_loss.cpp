// Implements what the losses with a softmax inside have in common.
#include "shoal/layers/softmax_loss.h"

#include "shoal/ops/backend.h"
#include "shoal/proto/config_error.h"

namespace shoal {

SoftmaxLossLayer::SoftmaxLossLayer(const LayerParameter& layer, int axis)
    : LossLayer(layer), axis_(axis) {}

LossParameter::NormalizationMode SoftmaxLossLayer::mode() const {
  return normalization_of(param().loss_param(), LossParameter::VALID);
}

// The normalizer follows the batch where only some of its labels count.
Layer::Replays SoftmaxLossLayer::replays() const {
  const bool fixed = mode() != LossParameter::VALID || !desc_.ignore;
  return {.forward = false, .backward = fixed && LossLayer::replays().backward};
}

void SoftmaxLossLayer::reshape(Context& ctx, Bottoms bottoms, Tops tops) {
  LossLayer::reshape(ctx, bottoms, tops);
  check_loss_param(param());
  const Shape& shape = bottoms[0]->shape();
  desc_ = class_desc(param(), *bottoms[0], axis_of(shape, axis_, "axis"), *bottoms[1],
                     ignored_label(param().loss_param()));
  softmax_.select("softmax", ops::backend(ctx).softmax, {desc_.outer, desc_.classes, desc_.inner},
                  ctx, engine_of(param(), param().softmax_param().engine()));
  two_tops_ = tops.size() > 1;
  probs(tops).reshape(shape);
  if (two_tops_) tops[1]->grad.reshape(shape);
}

void SoftmaxLossLayer::forward(Context& ctx, Bottoms bottoms, Tops tops) {
  const std::optional<std::int64_t> counted =
      count_labels(ctx, desc_, *bottoms[0], *bottoms[1], &warned_);
  if (!counted) return;
  softmax_->forward(ctx, bottoms[0]->data, probs(tops));
  normalizer_ = loss_normalizer(param().loss_param(), mode(),
                                {.all = desc_.items(), .counted = *counted, .batch = desc_.outer});
  put_loss(ctx, probs(tops), bottoms, normalizer_, tops[0]->data);
}

void SoftmaxLossLayer::backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                                Bottoms bottoms) {
  if (!propagate[0]) return;
  gradient(ctx, probs(tops), bottoms, static_cast<float>(upstream(tops) / normalizer_),
           bottoms[0]->grad);
}

}  // namespace shoal
