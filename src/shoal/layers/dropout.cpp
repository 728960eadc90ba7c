// Dropout layer: sets numbers to 0 at random in training.
#include "shoal/layers/layer.h"
#include "shoal/ops/pointwise.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// TRAIN: each number is 0 with probability dropout_ratio, else divided by 1 - dropout_ratio. TEST:
// the bottom as it is. No mask is kept: backward throws forward's coins again, from the state that
// the random numbers had. Throws ConfigError unless 0 < dropout_ratio < 1. Source: Srivastava et
// al., JMLR 15, 2014.
class Dropout final : public Layer {
 public:
  explicit Dropout(const LayerParameter& layer)
      : Layer(layer), ratio_(layer.dropout_param().dropout_ratio()) {
    if (!(ratio_ > 0 && ratio_ < 1))
      throw config_error(layer, "dropout_ratio is ", ratio_, "; it must be above 0 and below 1");
  }
  bool can_be_in_place() const override { return true; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {!training(), !training()}; }

  void reshape(Context&, Bottoms bottoms, Tops tops) override {
    if (tops[0] != bottoms[0]) tops[0]->reshape(bottoms[0]->shape());
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (!training()) return ops::copy(ctx, bottoms[0]->data, tops[0]->data);
    coins_ = ctx.random().state();
    ctx.random().skip(static_cast<std::uint64_t>(bottoms[0]->data.count()));
    ops::dropout(ctx, coins_, ratio_, bottoms[0]->data, tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (!propagate[0]) return;
    if (!training()) return ops::copy(ctx, tops[0]->grad, bottoms[0]->grad);
    ops::dropout(ctx, coins_, ratio_, tops[0]->grad, bottoms[0]->grad);
  }

 private:
  float ratio_;
  Random::State coins_;  // of the last forward
};

}  // namespace

std::unique_ptr<Layer> make_Dropout(const LayerParameter& param) {
  return std::make_unique<Dropout>(param);
}

}  // namespace shoal
