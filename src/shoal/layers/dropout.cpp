// Dropout layer: sets numbers to 0 at random in training.
#include "shoal/layers/layer.h"
#include "shoal/ops/pointwise.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// TRAIN: each number is 0 with probability dropout_ratio, else divided by 1 - dropout_ratio. TEST:
// the bottom as it is. With scale_train: false (Faster R-CNN's fork) TRAIN does not divide, and
// TEST multiplies by 1 - dropout_ratio; with sample_weights_test (SegNet's) TEST does as TRAIN. No
// mask is kept: backward throws forward's coins again, from the state that the random numbers had.
// Throws ConfigError unless 0 <= dropout_ratio < 1. Source: Srivastava et al., JMLR 15, 2014.
class Dropout final : public Layer {
 public:
  explicit Dropout(const LayerParameter& layer)
      : Layer(layer),
        ratio_(layer.dropout_param().dropout_ratio()),
        drops_((training() || layer.dropout_param().sample_weights_test()) && ratio_ > 0),
        scales_(!layer.dropout_param().scale_train()) {
    if (!(ratio_ >= 0 && ratio_ < 1))
      throw config_error(layer, "dropout_ratio is ", ratio_, "; it must be at least 0 and below 1");
  }
  bool can_be_in_place() const override { return true; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {!drops_, !drops_}; }

  void reshape(Context&, Bottoms bottoms, Tops tops) override {
    if (tops[0] != bottoms[0]) tops[0]->reshape(bottoms[0]->shape());
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (drops_) {
      coins_ = ctx.random().state();
      ctx.random().skip(static_cast<std::uint64_t>(bottoms[0]->data.count()));
    }
    apply(ctx, bottoms[0]->data, tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (propagate[0]) apply(ctx, tops[0]->grad, bottoms[0]->grad);
  }

 private:
  void apply(Context& ctx, const Tensor& x, Tensor& y) {
    if (drops_)
      ops::dropout(ctx, coins_, ratio_, x, y);
    else
      ops::copy(ctx, x, y);
    // Both of its kinds keep 1 - ratio of a number on average.
    if (scales_) ops::scale(ctx, 1 - ratio_, y);
  }

  float ratio_;
  bool drops_;           // in this phase
  bool scales_;          // by 1 - ratio, in both phases
  Random::State coins_;  // of the last forward
};

}  // namespace

std::unique_ptr<Layer> make_Dropout(const LayerParameter& param) {
  return std::make_unique<Dropout>(param);
}

}  // namespace shoal
