// FocalLoss layer: the softmax loss, which counts items less the better their class is known.
#include <limits>

#include "shoal/base/log.h"
#include "shoal/layers/softmax_loss.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// -alpha (1 - p)^gamma ln p, p the softmax of the true class: SoftmaxLossLayer has the shapes. A
// probability below FLT_MIN counts as that in the logarithm. Throws ConfigError unless alpha > 0
// and gamma >= 0. Type LINEAR is the same loss: the forks' layer reads the type and beta, and
// computes with neither. Sources: Lin et al., "Focal loss for dense object detection", 2017;
// FocalLossLayer of zimenglan-sysu-512's Focal-Loss, whose fields these are.
class FocalLoss final : public SoftmaxLossLayer {
 public:
  explicit FocalLoss(const LayerParameter& layer)
      : SoftmaxLossLayer(layer, layer.softmax_param().axis()),
        focal_{.alpha = layer.focal_loss_param().alpha(),
               .gamma = layer.focal_loss_param().gamma(),
               .floor = std::numeric_limits<float>::min()} {
    if (layer.focal_loss_param().type() != FocalLossParameter::ORIGIN)
      LOG(WARNING) << layer_place(layer) << ": type LINEAR computes what ORIGIN does, as in the "
                   << "fork that has it; its beta says nothing";
    if (!(focal_.alpha > 0 && focal_.gamma >= 0))
      throw config_error(layer, "alpha is ", focal_.alpha, " and gamma ", focal_.gamma,
                         "; alpha must be above 0, gamma 0 or more");
  }

 private:
  void put_loss(Context& ctx, const Tensor& probs, Bottoms bottoms, double divisor,
                Tensor& loss) override {
    ops::focal_loss(ctx, desc(), focal_, probs, bottoms[1]->data, divisor, loss);
  }
  void gradient(Context& ctx, const Tensor& probs, Bottoms bottoms, float scale,
                Tensor& dscores) override {
    ops::softmax_focal_loss_backward(ctx, desc(), focal_, probs, bottoms[1]->data, scale, dscores);
  }
  ops::FocalDesc focal_;
};

}  // namespace

std::unique_ptr<Layer> make_FocalLoss(const LayerParameter& param) {
  return std::make_unique<FocalLoss>(param);
}
std::unique_ptr<Layer> make_SoftmaxFocalLoss(const LayerParameter& param) {
  return std::make_unique<FocalLoss>(param);
}

}  // namespace shoal
