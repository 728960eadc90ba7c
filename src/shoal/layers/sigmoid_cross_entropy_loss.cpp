// SigmoidCrossEntropyLoss layer: the log loss of independent probabilities.
#include "shoal/layers/loss.h"
#include "shoal/ops/loss.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// The sum of -t ln s(x) - (1 - t) ln(1 - s(x)), s the sigmoid, in a form that neither overflows nor
// takes ln 0.
//   bottom[0] x (N, ...)   bottom[1] t, as many numbers, any from 0 to 1   top[0] one number
// A target that cut to a whole number is ignore_label counts nothing (0.5 too, for ignore_label 0).
// Divided by N (BATCH_SIZE) unless loss_param says otherwise. Throws ConfigError, which names both
// shapes, if they do not fit.
class SigmoidCrossEntropyLoss final : public LossLayer {
 public:
  explicit SigmoidCrossEntropyLoss(const LayerParameter& layer)
      : LossLayer(layer),
        mode_(normalization_of(layer.loss_param(), LossParameter::BATCH_SIZE)),
        ignore_(ignored_label(layer.loss_param())) {}

  // The normalizer follows the batch where only some of its targets count.
  Replays replays() const override {
    const bool fixed = mode_ != LossParameter::VALID || !ignore_;
    return {.forward = false, .backward = fixed && LossLayer::replays().backward};
  }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    LossLayer::reshape(ctx, bottoms, tops);
    check_loss_param(param());
    const Shape &x = bottoms[0]->shape(), &targets = bottoms[1]->shape();
    if (x.axes() == 0 || x.count() != targets.count())
      throw config_error(param(), "bottom '", bottoms[0]->name, "' of shape ", x.str(),
                         " and bottom '", bottoms[1]->name, "' of shape ", targets.str(),
                         " differ; this loss wants a target between 0 and 1 for each number, not a "
                         "class number an item");
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    const Tensor &x = bottoms[0]->data, &targets = bottoms[1]->data;
    normalizer_ = loss_normalizer(param().loss_param(), mode_,
                                  {.all = x.count(),
                                   .counted = ops::count_targets(ctx, targets, ignore_),
                                   .batch = x.shape()[0]});
    ops::sigmoid_cross_entropy(ctx, x, targets, ignore_, normalizer_, tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    const float scale = static_cast<float>(upstream(tops) / normalizer_);
    if (propagate[0])
      ops::sigmoid_cross_entropy_backward(ctx, bottoms[0]->data, bottoms[1]->data, ignore_, scale,
                                          bottoms[0]->grad);
  }

 private:
  LossParameter::NormalizationMode mode_;
  std::optional<int> ignore_;
  double normalizer_ = 1;  // of the last forward
};

}  // namespace

std::unique_ptr<Layer> make_SigmoidCrossEntropyLoss(const LayerParameter& param) {
  return std::make_unique<SigmoidCrossEntropyLoss>(param);
}

}  // namespace shoal
