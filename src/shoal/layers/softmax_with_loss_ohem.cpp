// SoftmaxWithLossOHEM layer, and SoftmaxWithLoss with the loss of each item as a third top.
#include <limits>

#include "shoal/layers/softmax_loss.h"
#include "shoal/ops/instance_loss.h"

namespace shoal {
namespace {

// SoftmaxLossLayer has the shapes of bottoms and of top[0] and top[1], the probabilities. top[2],
// if asked for, has the shape of the labels: the loss of each item, 0 for those ignored; its
// gradient is not looked at. Source: the fork of R-FCN (Dai et al., 2016), for online hard example
// mining.
class SoftmaxWithLossOhem final : public SoftmaxLossLayer {
 public:
  explicit SoftmaxWithLossOhem(const LayerParameter& layer)
      : SoftmaxLossLayer(layer, layer.softmax_param().axis()) {}
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 2, .max_tops = 3}; }
  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    SoftmaxLossLayer::reshape(ctx, bottoms, tops);
    losses_ = tops.size() > 2 ? tops[2] : nullptr;
    if (losses_ != nullptr) losses_->reshape(bottoms[1]->shape());
  }

 private:
  static constexpr float kFloor = std::numeric_limits<float>::min();
  void put_loss(Context& ctx, const Tensor& probs, Bottoms bottoms, double divisor,
                Tensor& loss) override {
    ops::log_loss(ctx, desc(), probs, bottoms[1]->data, kFloor, divisor, loss);
    if (losses_ != nullptr)
      ops::log_losses(ctx, desc(), probs, bottoms[1]->data, kFloor, losses_->data);
  }
  void gradient(Context& ctx, const Tensor& probs, Bottoms bottoms, float scale,
                Tensor& dscores) override {
    ops::softmax_log_loss_backward(ctx, desc(), probs, bottoms[1]->data, scale, dscores);
  }
  Blob* losses_ = nullptr;  // top[2]
};

}  // namespace

std::unique_ptr<Layer> make_SoftmaxWithLossOHEM(const LayerParameter& param) {
  return std::make_unique<SoftmaxWithLossOhem>(param);
}

}  // namespace shoal
