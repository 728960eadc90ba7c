// Embed layer: a learned vector for each whole number.
#include "shoal/layers/layer.h"
#include "shoal/layers/row_numbers.h"
#include "shoal/ops/broadcast.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// A learned vector for each number.
//   bottom[0] (A...), whole numbers below D = input_dim
//   params: weight (D, K), with bias_term bias (K)
//   top[0] (A..., K): top[a] = weight[bottom[a]] + bias
// backward adds to the params' gradients; the numbers have none. A number out of range is a failure
// of the pass (kData).
class Embed final : public Layer {
 public:
  using Layer::Layer;
  Propagates propagates(int) const override { return Propagates::kRefuses; }
  Reads reads() const override { return {.bottom_data = true, .top_data = false}; }
  Replays replays() const override { return {.forward = false}; }  // check_rows looks on the host

  void setup(Context& ctx, Bottoms, Tops) override {
    const EmbedParameter& embed = param().embed_param();
    if (embed.num_output() < 1 || embed.input_dim() < 1)
      throw config_error(param(), "num_output is ", embed.num_output(), " and input_dim ",
                         embed.input_dim(), "; both must be 1 or more");
    add_param(ctx, {embed.input_dim(), embed.num_output()}, embed.weight_filler());
    if (embed.bias_term()) add_param(ctx, {embed.num_output()}, embed.bias_filler());
  }
  void reshape(Context&, Bottoms bottom, Tops top) override {
    std::vector<std::int64_t> dims = bottom[0]->shape().dims();
    dims.push_back(param().embed_param().num_output());
    top[0]->reshape(Shape(dims));
    dims_ = {.outer = bottom[0]->shape().count(), .dim = dims.back(), .inner = 1};
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    if (!check_rows(ctx, *bottom[0], param().embed_param().input_dim(),
                    "; is input_dim too small?"))
      return;
    ops::take_rows(ctx, params()[0]->data, bottom[0]->data, top[0]->data);
    if (params().size() > 1) ops::shift(ctx, dims_, top[0]->data, params()[1]->data, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>&, Bottoms bottom) override {
    if (param_propagates(0)) ops::add_rows(ctx, top[0]->grad, bottom[0]->data, params()[0]->grad);
    if (params().size() > 1 && param_propagates(1))
      ops::shift_backward(ctx, dims_, top[0]->grad, {&params()[1]->grad, true});
  }

 private:
  ops::BroadcastDims dims_;
};

}  // namespace

std::unique_ptr<Layer> make_Embed(const LayerParameter& param) {
  return std::make_unique<Embed>(param);
}

}  // namespace shoal
