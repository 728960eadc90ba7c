// BatchReindex layer: picks items of a batch by number.
#include "shoal/layers/layer.h"
#include "shoal/layers/row_numbers.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Items of a batch picked by number, in any order and any number of times.
//   bottom[0] (N, A...)   bottom[1] (M), whole numbers below N
//   top[0] (M, A...) = bottom[0][bottom[1][m]]
// backward overwrites bottom[0].grad: an item picked twice sums both gradients, one not picked has
// none. A number out of range is a failure of the pass (kData).
class BatchReindex final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 2}; }
  Propagates propagates(int bottom) const override {
    return bottom == 0 ? Propagates::kYes : Propagates::kRefuses;
  }
  Reads reads() const override { return {.bottom_data = true, .top_data = false}; }
  Replays replays() const override { return {.forward = false}; }  // check_rows looks on the host

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape &items = bottom[0]->shape(), &index = bottom[1]->shape();
    if (items.axes() == 0)
      throw config_error(param(), "bottom '", bottom[0]->name,
                         "' is a single number; it needs a batch axis");
    if (index.axes() != 1)
      throw config_error(param(), "bottom '", bottom[1]->name,
                         "' holds item numbers and needs one axis; its shape is ", index.str());
    std::vector<std::int64_t> dims = items.dims();
    dims[0] = index[0];
    top[0]->reshape(Shape(dims));
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    if (check_rows(ctx, *bottom[1], bottom[0]->shape()[0], ""))
      ops::take_rows(ctx, bottom[0]->data, bottom[1]->data, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (!propagate[0]) return;
    ops::fill(ctx, 0, bottom[0]->grad);
    ops::add_rows(ctx, top[0]->grad, bottom[1]->data, bottom[0]->grad);
  }
};

}  // namespace

std::unique_ptr<Layer> make_BatchReindex(const LayerParameter& param) {
  return std::make_unique<BatchReindex>(param);
}

}  // namespace shoal
