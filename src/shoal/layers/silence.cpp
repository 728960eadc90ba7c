// Silence layer: takes blobs so that they are no outputs of the net.
#include "shoal/layers/layer.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Takes blobs and does nothing, so that they are no outputs of the net.
//   bottom[i] any shape   no top
// backward overwrites the bottoms' gradients with zeros.
class Silence final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.max_bottoms = Arity::kAny, .min_tops = 0, .max_tops = 0};
  }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  void reshape(Context&, Bottoms, Tops) override {}
  void forward(Context&, Bottoms, Tops) override {}
  void backward(Context& ctx, Tops, const std::vector<bool>& propagate, Bottoms bottom) override {
    for (std::size_t i = 0; i < bottom.size(); ++i)
      if (propagate[i]) ops::fill(ctx, 0, bottom[i]->grad);
  }
};

}  // namespace

std::unique_ptr<Layer> make_Silence(const LayerParameter& param) {
  return std::make_unique<Silence>(param);
}

}  // namespace shoal
