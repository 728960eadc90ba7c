// EuclideanLoss layer: half the mean squared distance of two blobs.
#include "shoal/layers/loss.h"
#include "shoal/ops/loss.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// Half the sum of (a - b)^2, divided by N.
//   bottom[0] a (N, ...)   bottom[1] b (N, ...), as many numbers an item; either may have a
//   gradient top[0] one number
// Throws ConfigError, which names both shapes, if they do not fit.
class EuclideanLoss final : public LossLayer {
 public:
  using LossLayer::LossLayer;
  Propagates propagates(int) const override { return Propagates::kYes; }

  Replays replays() const override {
    return {.forward = true, .backward = LossLayer::replays().backward};
  }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    LossLayer::reshape(ctx, bottoms, tops);
    const Shape &a = bottoms[0]->shape(), &b = bottoms[1]->shape();
    if (a.axes() == 0 || b.axes() == 0 || a[0] != b[0] || a.count() != b.count())
      throw config_error(param(), "bottom '", bottoms[0]->name, "' of shape ", a.str(),
                         " and bottom '", bottoms[1]->name, "' of shape ", b.str(),
                         " differ; is num_output the number of values a label has?");
    items_ = static_cast<double>(std::max<std::int64_t>(a[0], 1));
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    ops::squared_distance(ctx, bottoms[0]->data, bottoms[1]->data, 2 * items_, tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    const float scale = static_cast<float>(upstream(tops) / items_);
    for (std::size_t i = 0; i < 2; ++i)
      if (propagate[i])
        ops::difference(ctx, i == 0 ? scale : -scale, bottoms[0]->data, bottoms[1]->data,
                        bottoms[i]->grad);
  }

 private:
  double items_ = 1;
};

}  // namespace

std::unique_ptr<Layer> make_EuclideanLoss(const LayerParameter& param) {
  return std::make_unique<EuclideanLoss>(param);
}

}  // namespace shoal
