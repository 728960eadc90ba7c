// HingeLoss layer: the one-versus-all margin loss.
#include "shoal/layers/class_labels.h"
#include "shoal/layers/loss.h"

namespace shoal {
namespace {

// The sum over items and classes of max(0, 1 + t score), or of its square (norm L2), divided by N;
// t is -1 at the label, 1 elsewhere.
//   bottom[0] scores (N, ...), all axes after the first are classes   bottom[1] labels, N of them
//   top[0] one number
// Throws ConfigError, which names both shapes, if they do not fit. A label that is no class ends
// the pass.
class HingeLoss final : public LossLayer {
 public:
  explicit HingeLoss(const LayerParameter& layer)
      : LossLayer(layer),
        norm_(layer.hinge_loss_param().norm() == HingeLossParameter::L1 ? ops::HingeNorm::kL1
                                                                        : ops::HingeNorm::kL2) {}

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    LossLayer::reshape(ctx, bottoms, tops);
    desc_ = flat_class_desc(param(), *bottoms[0], *bottoms[1]);
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (!count_labels(ctx, desc_, *bottoms[0], *bottoms[1], &warned_)) return;
    ops::hinge_loss(ctx, desc_, bottoms[0]->data, bottoms[1]->data, norm_, items(), tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    const float scale = static_cast<float>(upstream(tops) / items());
    if (propagate[0])
      ops::hinge_loss_backward(ctx, desc_, bottoms[0]->data, bottoms[1]->data, norm_, scale,
                               bottoms[0]->grad);
  }

 private:
  double items() const { return static_cast<double>(std::max<std::int64_t>(desc_.outer, 1)); }

  ops::HingeNorm norm_;
  ops::ClassDesc desc_;
  bool warned_ = false;  // of labels that are no whole numbers
};

}  // namespace

std::unique_ptr<Layer> make_HingeLoss(const LayerParameter& param) {
  return std::make_unique<HingeLoss>(param);
}

}  // namespace shoal
