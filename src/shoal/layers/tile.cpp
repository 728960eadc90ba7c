// Tile layer: copies of the bottom one after the other along an axis.
#include "shoal/layers/layer.h"
#include "shoal/ops/slice.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Copies of the bottom one after the other along an axis.
//   bottom[0] (..., D, ...)   top[0] (..., tiles D, ...)
// backward overwrites bottom[0].grad with the sum over the copies, in order. Throws ConfigError
// unless tiles >= 1.
class Tile final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }

  void setup(Context&, Bottoms, Tops) override {
    tiles_ = param().tile_param().tiles();
    if (tiles_ < 1) throw config_error(param(), "tiles is ", tiles_, "; it must be 1 or more");
  }
  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape& shape = bottom[0]->shape();
    axis_ = axis_of(shape, param().tile_param().axis(), "axis");
    std::vector<std::int64_t> dims = shape.dims();
    dims[static_cast<std::size_t>(axis_)] *= tiles_;
    top[0]->reshape(Shape(dims));
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    for (int t = 0; t < tiles_; ++t)
      ops::paste(ctx, bottom[0]->data, top[0]->data, start(*bottom[0], t));
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (!propagate[0]) return;
    ops::cut(ctx, top[0]->grad, start(*bottom[0], 0), bottom[0]->grad);
    for (int t = 1; t < tiles_; ++t)
      ops::add_cut(ctx, top[0]->grad, start(*bottom[0], t), bottom[0]->grad);
  }

 private:
  std::vector<std::int64_t> start(const Blob& bottom, int tile) const {
    return ops::along(bottom.shape(), axis_, tile * bottom.shape()[axis_]);
  }
  int tiles_ = 1, axis_ = 0;
};

}  // namespace

std::unique_ptr<Layer> make_Tile(const LayerParameter& param) {
  return std::make_unique<Tile>(param);
}

}  // namespace shoal
