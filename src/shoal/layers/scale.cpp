// Scale layer: multiplies axes of a blob by a param or a second bottom.
#include "shoal/layers/broadcast_dims.h"
#include "shoal/layers/elementwise.h"
#include "shoal/layers/layer.h"
#include "shoal/ops/broadcast.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Multiplies axes of a blob by a param, or by a second bottom, and with bias_term adds another
// param of that shape.
//   bottom[0] (A..., B..., C...)   bottom[1], or else params[0] (B...), num_axes axes from `axis`
//   on top[0] as bottom[0]: top[a][b][c] = bottom[0][a][b][c] factor[b] + bias[b]; in place
//   allowed: a copy of the input is then kept where it is needed
// backward overwrites the bottoms' gradients and adds to the params' (BVLC Caffe overwrites the
// factor's in some shapes, and so loses what earlier parts of a batch left there). The top's
// gradient lies in the first bottom's bytes.
class Scale final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.max_bottoms = 2}; }
  bool can_be_in_place() const override { return true; }
  Reads reads() const override { return {.bottom_data = two_ || !in_place_, .top_data = false}; }
  KeepsLayout keeps_layout() const override {
    return {.data = by_channel_, .grad = by_channel_, .of_first = true};
  }

  void setup(Context& ctx, Bottoms bottom, Tops) override {
    const ScaleParameter& scale = param().scale_param();
    two_ = bottom.size() == 2;
    FillerParameter one;
    one.set_value(1);
    if (!two_)
      add_param(ctx, spanned_axes(param(), bottom[0]->shape(), scale.axis(), scale.num_axes()),
                scale.has_filler() ? scale.filler() : one);
    if (scale.bias_term())
      add_param(ctx, two_ ? bottom[1]->shape() : params()[0]->shape(), scale.bias_filler());
  }
  void reshape(Context&, Bottoms bottom, Tops top) override {
    const int axis = param().scale_param().axis();
    const Shape& numbers = two_ ? bottom[1]->shape() : params()[0]->shape();
    dims_ = broadcast_dims(param(), *bottom[0], axis, numbers,
                           two_ ? "bottom '" + bottom[1]->name + "'" : "the factor");
    by_channel_ = is_by_channel(dims_, bottom[0]->shape());
    if (has_bias() && bias().shape().count() != numbers.count())
      throw config_error(param(), "the bias has shape ", bias().shape().str(), ", bottom '",
                         bottom[1]->name, "' now ", numbers.str());
    in_place_ = top[0] == bottom[0];
    if (in_place_) return;
    top[0]->reshape(bottom[0]->shape());
    top[0]->grad.share(bottom[0]->grad);
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    if (in_place_ && training() && (two_ || param_propagates(0))) {
      input_.reshape(bottom[0]->shape());
      ops::copy(ctx, bottom[0]->data, input_);
    }
    const Tensor& factor = two_ ? bottom[1]->data : params()[0]->data;
    ops::scale_and_shift(ctx, dims_, bottom[0]->data, factor, has_bias() ? &bias().data : nullptr,
                         top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    ops::SumInto factor_grad, bias_grad;
    if (two_ && propagate[1]) factor_grad = {&bottom[1]->grad, false};
    if (!two_ && param_propagates(0)) factor_grad = {&params()[0]->grad, true};
    if (has_bias() && param_propagates(two_ ? 0 : 1)) bias_grad = {&bias().grad, true};
    const Tensor& factor = two_ ? bottom[1]->data : params()[0]->data;
    if (in_place_ && !training() && factor_grad.tensor != nullptr)
      return fail_backward_in_place(ctx);
    const Tensor& input = in_place_ ? input_ : bottom[0]->data;
    ops::scale_backward(ctx, dims_, top[0]->grad, input, factor,
                        propagate[0] ? &bottom[0]->grad : nullptr, factor_grad, bias_grad);
  }

 private:
  bool has_bias() const { return param().scale_param().bias_term(); }
  Blob& bias() const { return *params()[two_ ? 0 : 1]; }
  bool two_ = false;  // the factor is bottom[1]
  bool in_place_ = false;
  ops::BroadcastDims dims_;
  bool by_channel_ = false;
  Tensor input_;  // in place: what the top overwrote
};

}  // namespace

std::unique_ptr<Layer> make_Scale(const LayerParameter& param) {
  return std::make_unique<Scale>(param);
}

}  // namespace shoal
