// MultinomialLogisticLoss layer: the log loss of given probabilities.
#include "shoal/layers/class_labels.h"
#include "shoal/layers/loss.h"

namespace shoal {
namespace {

// The sum over items of -ln p[label], divided by N; p is taken as 1e-20 where it is smaller, in the
// gradient too.
//   bottom[0] probabilities (N, ...), all axes after the first are classes
//   bottom[1] labels, N of them   top[0] one number
// SoftmaxWithLoss is this loss and the softmax before it at once. Throws ConfigError, which names
// both shapes, if they do not fit. A label that is no class ends the pass.
class MultinomialLogisticLoss final : public LossLayer {
 public:
  using LossLayer::LossLayer;

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    LossLayer::reshape(ctx, bottoms, tops);
    desc_ = flat_class_desc(param(), *bottoms[0], *bottoms[1]);
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (!count_labels(ctx, desc_, *bottoms[0], *bottoms[1], &warned_)) return;
    ops::log_loss(ctx, desc_, bottoms[0]->data, bottoms[1]->data, kFloor, items(), tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    const float scale = static_cast<float>(upstream(tops) / items());
    if (propagate[0])
      ops::log_loss_backward(ctx, desc_, bottoms[0]->data, bottoms[1]->data, kFloor, scale,
                             bottoms[0]->grad);
  }

 private:
  static constexpr float kFloor = 1e-20f;
  double items() const { return static_cast<double>(std::max<std::int64_t>(desc_.outer, 1)); }

  ops::ClassDesc desc_;
  bool warned_ = false;  // of labels that are no whole numbers
};

}  // namespace

std::unique_ptr<Layer> make_MultinomialLogisticLoss(const LayerParameter& param) {
  return std::make_unique<MultinomialLogisticLoss>(param);
}

}  // namespace shoal
