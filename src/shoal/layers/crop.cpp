// Crop layer: cuts from the first bottom a box as large as the second one.
#include "shoal/layers/layer.h"
#include "shoal/ops/slice.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// A box of the first bottom, as large as the second one.
//   bottom[0] (A..., S...)   bottom[1] any of as many axes, (..., T...)
//   top[0] (A..., T...), from the given offsets of S on; S and T are the axes from `axis` on
// backward overwrites bottom[0].grad: the top's gradient in the box, 0 round it. bottom[1] is
// looked at for its shape only.
class Crop final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 2}; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Propagates propagates(int bottom) const override {
    return bottom == 0 ? Propagates::kYes : Propagates::kNothing;
  }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape &whole = bottom[0]->shape(), &size = bottom[1]->shape();
    if (size.axes() != whole.axes())
      throw config_error(param(), "bottom '", bottom[0]->name, "' has shape ", whole.str(),
                         ", bottom '", bottom[1]->name, "' ", size.str(),
                         "; they must have the same number of axes");
    const int axis = axis_of(whole, param().crop_param().axis(), "axis");
    offset_.assign(static_cast<std::size_t>(whole.axes()), 0);
    std::vector<std::int64_t> dims = whole.dims();
    for (int i = axis; i < whole.axes(); ++i) {
      const std::size_t a = static_cast<std::size_t>(i);
      offset_[a] = offset_of(i - axis, whole.axes() - axis);
      dims[a] = size[i];
      if (offset_[a] + dims[a] > whole[i])
        throw config_error(param(), "on axis ", i, " the crop of bottom '", bottom[0]->name, "', ",
                           whole.str(), ", to the size of '", bottom[1]->name, "', ", size.str(),
                           ", ends at ", offset_[a], " + ", dims[a], ", past ", whole[i]);
    }
    top[0]->reshape(Shape(dims));
  }

  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    ops::cut(ctx, bottom[0]->data, offset_, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (!propagate[0]) return;
    ops::fill(ctx, 0, bottom[0]->grad);
    ops::paste(ctx, top[0]->grad, bottom[0]->grad, offset_);
  }

 private:
  std::int64_t offset_of(int cropped, int axes) const {
    const auto& offsets = param().crop_param().offset();
    if (offsets.empty()) return 0;
    if (offsets.size() != 1 && offsets.size() != axes)
      throw config_error(param(), "has ", offsets.size(), " offset for ", axes,
                         " cropped axes; give none, one, or one an axis");
    return offsets.Get(offsets.size() == 1 ? 0 : cropped);
  }
  std::vector<std::int64_t> offset_;
};

}  // namespace

std::unique_ptr<Layer> make_Crop(const LayerParameter& param) {
  return std::make_unique<Crop>(param);
}

}  // namespace shoal
