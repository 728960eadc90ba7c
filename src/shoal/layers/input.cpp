// Input layer: tops that the caller of Net::forward fills.
#include "shoal/layers/layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Placeholders that the caller of Net::forward fills.
//   tops: input_param.shape, one for all or one each
class Input final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 0, .max_bottoms = 0, .max_tops = Arity::kAny};
  }
  bool keeps_tops() const override { return true; }

  void setup(Context&, Bottoms, Tops tops) override {
    const InputParameter& input = param().input_param();
    const int shapes = input.shape_size(), wanted = static_cast<int>(tops.size());
    if (shapes != 0 && shapes != 1 && shapes != wanted)
      throw config_error(param(), "input_param has ", shapes, " shapes for ", wanted,
                         " tops; give none, one, or one a top");
    for (int i = 0; shapes > 0 && i < wanted; ++i) {
      const BlobShape& shape = input.shape(shapes == 1 ? 0 : i);
      tops[i]->reshape(Shape(std::vector<std::int64_t>(shape.dim().begin(), shape.dim().end())));
    }
  }
  void reshape(Context&, Bottoms, Tops) override {}
  void forward(Context&, Bottoms, Tops) override {}
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}
};

}  // namespace

std::unique_ptr<Layer> make_Input(const LayerParameter& param) {
  return std::make_unique<Input>(param);
}

}  // namespace shoal
