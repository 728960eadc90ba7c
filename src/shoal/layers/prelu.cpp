// PReLU layer: a ReLU with a learned slope for negative numbers.
#include "shoal/layers/elementwise.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Computes x if x > 0, else slope[c] x with a learned slope for each channel, or one for all. At 0
// the gradient is that of the left side.
//   bottom[0] (N, C, ...)   top[0] the same
//   param 0: slope (C), or one number without axes if channel_shared
// In place as Elementwise is. Throws ConfigError for fewer than two axes.
// Source: He et al., "Delving deep into rectifiers", 2015.
class PReLU final : public Layer {
 public:
  using Layer::Layer;
  bool can_be_in_place() const override { return true; }
  Reads reads() const override { return {.bottom_data = !in_place_, .top_data = false}; }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }

  void setup(Context& ctx, Bottoms bottoms, Tops) override {
    const Shape& shape = bottoms[0]->shape();
    check_axes(shape);
    FillerParameter filler = param().prelu_param().filler();
    if (!param().prelu_param().has_filler()) filler.set_value(0.25f);
    add_param(ctx, param().prelu_param().channel_shared() ? Shape() : Shape{shape[1]}, filler);
  }

  void reshape(Context&, Bottoms bottoms, Tops tops) override {
    const Shape& shape = bottoms[0]->shape();
    check_axes(shape);
    const std::int64_t slopes = params()[0]->data.count();
    const bool shared = param().prelu_param().channel_shared();
    if (!shared && shape[1] != slopes)
      throw config_error(param(), "has ", slopes, " slopes; the bottom's shape ", shape.str(),
                         " has ", shape[1], " channels");
    inner_ = shape.count(shared ? 1 : 2);
    in_place_ = bottoms[0] == tops[0];
    if (!in_place_) tops[0]->reshape(shape);
    if (keeps_bottom()) kept_.reshape(shape);
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    if (keeps_bottom()) ops::copy(ctx, bottoms[0]->data, kept_);
    ops::prelu(ctx, bottoms[0]->data, params()[0]->data, inner_, tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (in_place_ && !keeps_bottom()) return fail_backward_in_place(ctx);
    const Tensor &x = in_place_ ? kept_ : bottoms[0]->data, &dy = tops[0]->grad;
    if (param_propagates(0)) ops::prelu_slope_backward(ctx, x, inner_, dy, params()[0]->grad);
    if (propagate[0]) ops::prelu_backward(ctx, x, params()[0]->data, inner_, dy, bottoms[0]->grad);
  }

 private:
  void check_axes(const Shape& shape) const {
    if (shape.axes() < 2)
      throw config_error(param(),
                         "needs a bottom with a channel axis, axis 1; the bottom's shape is ",
                         shape.str());
  }
  bool keeps_bottom() const { return in_place_ && training(); }

  std::int64_t inner_ = 1;  // neighbours that share a slope
  bool in_place_ = false;
  Tensor kept_;  // the bottom as it was, where the top took its place
};

}  // namespace

std::unique_ptr<Layer> make_PReLU(const LayerParameter& param) {
  return std::make_unique<PReLU>(param);
}

}  // namespace shoal
