// Parameter layer: a learned blob as a top.
#include "shoal/layers/layer.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// A learned blob as a top.
//   no bottom   top[0] a copy of the param, of the shape that parameter_param gives
// backward adds the top's gradient to the param's.
class Parameter final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 0, .max_bottoms = 0}; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }

  void setup(Context&, Bottoms, Tops) override {
    const auto& dims = param().parameter_param().shape().dim();
    add_constant_param(Shape(std::vector<std::int64_t>(dims.begin(), dims.end())), 0);
  }
  void reshape(Context&, Bottoms, Tops top) override { top[0]->reshape(params()[0]->shape()); }
  void forward(Context& ctx, Bottoms, Tops top) override {
    ops::copy(ctx, params()[0]->data, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>&, Bottoms) override {
    if (param_propagates(0)) ops::axpy(ctx, 1, top[0]->grad, params()[0]->grad);
  }
};

}  // namespace

std::unique_ptr<Layer> make_Parameter(const LayerParameter& param) {
  return std::make_unique<Parameter>(param);
}

}  // namespace shoal
