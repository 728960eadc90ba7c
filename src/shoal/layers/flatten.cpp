// Flatten layer: makes several axes one.
#include "shoal/layers/layer.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Several axes seen as one.
//   bottom[0] (A..., B..., C...)   top[0] (A..., count of B, C...), looking at the same bytes; B is
//   axis to end_axis, both included
class Flatten final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape& shape = bottom[0]->shape();
    const int first = axis_of(shape, param().flatten_param().axis(), "axis");
    const int last = axis_of(shape, param().flatten_param().end_axis(), "end_axis");
    if (last < first)
      throw config_error(param(), "end_axis ", last, " comes before axis ", first,
                         " in the bottom's shape ", shape.str());
    std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().begin() + first);
    dims.push_back(shape.count(first, last + 1));
    dims.insert(dims.end(), shape.dims().begin() + last + 1, shape.dims().end());
    top[0]->reshape(Shape(dims));
    top[0]->data.share(bottom[0]->data);
    top[0]->grad.share(bottom[0]->grad);
  }
  void forward(Context&, Bottoms, Tops) override {}
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    // There is nothing to do where they are the same bytes.
    if (propagate[0]) ops::copy(ctx, top[0]->grad, bottom[0]->grad);
  }
};

}  // namespace

std::unique_ptr<Layer> make_Flatten(const LayerParameter& param) {
  return std::make_unique<Flatten>(param);
}

}  // namespace shoal
