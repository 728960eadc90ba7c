// Slice layer: cuts the bottom in pieces along an axis.
#include "shoal/ops/slice.h"
#include "shoal/layers/join_axis.h"
#include "shoal/layers/layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// The bottom cut in pieces along an axis.
//   bottom[0] (..., D, ...)   top[k] (..., D_k, ...); the pieces begin at 0 and at the slice
//   points, or are equal if there are none
// backward overwrites bottom[0].grad with the tops' gradients side by side. One top: it looks at
// the bottom's bytes. Throws ConfigError unless the points rise strictly inside (0, D), or D is a
// multiple of the number of tops.
class Slice final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.max_tops = Arity::kAny}; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const SliceParameter& slice = param().slice_param();
    const Shape& shape = bottom[0]->shape();
    const int axis = join_axis(param(), slice.has_axis(), slice.axis(), slice.has_slice_dim(),
                               slice.slice_dim(), "slice_dim");
    axis_ = axis_of(shape, axis, "axis");
    const std::vector<std::int64_t> ends = piece_ends(shape, static_cast<int>(top.size()));
    std::vector<std::int64_t> dims = shape.dims();
    std::int64_t begin = 0;
    for (std::size_t k = 0; k < top.size(); begin = ends[k++]) {
      dims[static_cast<std::size_t>(axis_)] = ends[k] - begin;
      top[k]->reshape(Shape(dims));
    }
    if (top.size() == 1) {
      top[0]->data.share(bottom[0]->data);
      top[0]->grad.share(bottom[0]->grad);
    }
  }

  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    if (top.size() == 1) return;
    std::int64_t at = 0;
    for (std::size_t k = 0; k < top.size(); at += top[k++]->shape()[axis_])
      ops::cut(ctx, bottom[0]->data, ops::along(bottom[0]->shape(), axis_, at), top[k]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (!propagate[0] || top.size() == 1) return;
    std::int64_t at = 0;
    for (std::size_t k = 0; k < top.size(); at += top[k++]->shape()[axis_])
      ops::paste(ctx, top[k]->grad, bottom[0]->grad, ops::along(bottom[0]->shape(), axis_, at));
  }

 private:
  std::vector<std::int64_t> piece_ends(const Shape& shape, int tops) const {
    const auto& points = param().slice_param().slice_point();
    const std::int64_t size = shape[axis_];
    std::vector<std::int64_t> ends;
    if (points.empty()) {
      if (size % tops != 0)
        throw config_error(param(), "axis ", axis_, " of the bottom's shape ", shape.str(),
                           " does not divide into ", tops, " equal tops; give slice_point");
      for (int k = 1; k <= tops; ++k) ends.push_back(size / tops * k);
      return ends;
    }
    if (points.size() != tops - 1)
      throw config_error(param(), "has ", points.size(), " slice_point for ", tops,
                         " tops; give one less than there are tops");
    for (const std::int64_t point : points) {
      if (point <= (ends.empty() ? 0 : ends.back()) || point >= size)
        throw config_error(param(), "slice_point ", point, " does not lie after ",
                           ends.empty() ? 0 : ends.back(), " and before ", size,
                           ", the size of axis ", axis_, " of the bottom's shape ", shape.str());
      ends.push_back(point);
    }
    ends.push_back(size);
    return ends;
  }
  int axis_ = 0;
};

}  // namespace

std::unique_ptr<Layer> make_Slice(const LayerParameter& param) {
  return std::make_unique<Slice>(param);
}

}  // namespace shoal
