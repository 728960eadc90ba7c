// ContrastiveLoss layer: pulls alike pairs together and pushes others apart.
#include "shoal/layers/loss.h"
#include "shoal/ops/loss.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// Takes, of each pair of rows d apart, d^2 if they are alike, else max(margin - d, 0)^2. The loss
// is half the sum, divided by N.
//   bottom[0] a (N, C, 1 ...)   bottom[1] b, the same   bottom[2] similar, N of them: 0 is
//   different top[0] one number
// legacy_version takes max(margin - d^2, 0). The gradient divides by d + 1e-4 in place of d, as
// Caffe's does. Throws ConfigError, which names the shapes, if they do not fit. Source: Hadsell,
// Chopra, LeCun, CVPR 2006.
class ContrastiveLoss final : public LossLayer {
 public:
  using LossLayer::LossLayer;
  Arity arity() const override { return {.min_bottoms = 3, .max_bottoms = 3}; }
  Propagates propagates(int bottom) const override {
    return bottom < 2 ? Propagates::kYes : Propagates::kRefuses;
  }

  Replays replays() const override {
    return {.forward = true, .backward = LossLayer::replays().backward};
  }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    LossLayer::reshape(ctx, bottoms, tops);
    const Shape &a = bottoms[0]->shape(), &b = bottoms[1]->shape(), &similar = bottoms[2]->shape();
    if (a.axes() < 2 || b.axes() < 2 || a[0] != b[0] || a[1] != b[1] || a.count(2) != 1 ||
        b.count(2) != 1)
      throw config_error(param(), "bottom '", bottoms[0]->name, "' of shape ", a.str(),
                         " and bottom '", bottoms[1]->name, "' of shape ", b.str(),
                         " must both be (N, C), the features of N pairs");
    if (similar.count() != a[0])
      throw config_error(param(), "bottom '", bottoms[2]->name, "' of shape ", similar.str(),
                         " must say for each of the ", a[0], " pairs of '", bottoms[0]->name,
                         "' whether they are alike");
    const ContrastiveLossParameter& contrastive = param().contrastive_loss_param();
    desc_ = {a[0], a[1], contrastive.margin(), contrastive.legacy_version()};
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    ops::contrastive_loss(ctx, desc_, bottoms[0]->data, bottoms[1]->data, bottoms[2]->data,
                          2 * pairs(), tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    const float scale = static_cast<float>(upstream(tops) / pairs());
    for (std::size_t i = 0; i < 2; ++i)
      if (propagate[i])
        ops::contrastive_loss_backward(ctx, desc_, bottoms[0]->data, bottoms[1]->data,
                                       bottoms[2]->data, i == 0 ? scale : -scale, bottoms[i]->grad);
  }

 private:
  double pairs() const { return static_cast<double>(std::max<std::int64_t>(desc_.rows, 1)); }

  ops::ContrastiveDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> make_ContrastiveLoss(const LayerParameter& param) {
  return std::make_unique<ContrastiveLoss>(param);
}

}  // namespace shoal
