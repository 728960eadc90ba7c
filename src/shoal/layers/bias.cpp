// Bias layer: adds a param, or a second bottom, along some axes of a blob.
#include "shoal/layers/broadcast_dims.h"
#include "shoal/layers/layer.h"
#include "shoal/ops/broadcast.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Adds a param, or a second bottom, to axes of a blob.
//   bottom[0] (A..., B..., C...)   bottom[1], or else the param (B...), num_axes axes from `axis`
//   on top[0] as bottom[0]: top[a][b][c] = bottom[0][a][b][c] + number[b]; in place allowed
// backward overwrites the bottoms' gradients and adds to the param's. The top's gradient lies in
// the first bottom's bytes.
class Bias final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.max_bottoms = 2}; }
  bool can_be_in_place() const override { return true; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  KeepsLayout keeps_layout() const override {
    return {.data = by_channel_, .grad = by_channel_, .of_first = true};
  }

  void setup(Context& ctx, Bottoms bottom, Tops) override {
    const BiasParameter& bias = param().bias_param();
    if (bottom.size() == 1)
      add_param(ctx, spanned_axes(param(), bottom[0]->shape(), bias.axis(), bias.num_axes()),
                bias.filler());
  }
  void reshape(Context&, Bottoms bottom, Tops top) override {
    const bool two = bottom.size() == 2;
    const Shape& numbers = two ? bottom[1]->shape() : params()[0]->shape();
    dims_ = broadcast_dims(param(), *bottom[0], param().bias_param().axis(), numbers,
                           two ? "bottom '" + bottom[1]->name + "'" : "the bias");
    by_channel_ = is_by_channel(dims_, bottom[0]->shape());
    if (top[0] == bottom[0]) return;
    top[0]->reshape(bottom[0]->shape());
    top[0]->grad.share(bottom[0]->grad);
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    ops::shift(ctx, dims_, bottom[0]->data,
               bottom.size() == 2 ? bottom[1]->data : params()[0]->data, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    const bool two = bottom.size() == 2;
    if (two ? propagate[1] : param_propagates(0))
      ops::shift_backward(ctx, dims_, top[0]->grad,
                          {two ? &bottom[1]->grad : &params()[0]->grad, !two});
    // There is nothing to do where they are the same bytes.
    if (propagate[0]) ops::copy(ctx, top[0]->grad, bottom[0]->grad);
  }

 private:
  ops::BroadcastDims dims_;
  bool by_channel_ = false;
};

}  // namespace

std::unique_ptr<Layer> make_Bias(const LayerParameter& param) {
  return std::make_unique<Bias>(param);
}

}  // namespace shoal
