// SoftmaxWithLoss layer: the log loss of the softmax of the scores.
#include <limits>

#include "shoal/layers/softmax_loss.h"

namespace shoal {
namespace {

// -ln of the softmax of the true class: SoftmaxLossLayer has the shapes. The probability is taken
// as FLT_MIN where it is smaller, in the loss only; the gradient is p - (1 at the label).
class SoftmaxWithLoss final : public SoftmaxLossLayer {
 public:
  explicit SoftmaxWithLoss(const LayerParameter& layer)
      : SoftmaxLossLayer(layer, layer.softmax_param().axis()) {}

 private:
  void put_loss(Context& ctx, const Tensor& probs, Bottoms bottoms, double divisor,
                Tensor& loss) override {
    ops::log_loss(ctx, desc(), probs, bottoms[1]->data, std::numeric_limits<float>::min(), divisor,
                  loss);
  }
  void gradient(Context& ctx, const Tensor& probs, Bottoms bottoms, float scale,
                Tensor& dscores) override {
    ops::softmax_log_loss_backward(ctx, desc(), probs, bottoms[1]->data, scale, dscores);
  }
};

}  // namespace

std::unique_ptr<Layer> make_SoftmaxWithLoss(const LayerParameter& param) {
  return std::make_unique<SoftmaxWithLoss>(param);
}

}  // namespace shoal
