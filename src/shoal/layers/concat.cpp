// Concat layer: puts the bottoms one after the other along an axis.
#include "shoal/layers/join_axis.h"
#include "shoal/layers/layer.h"
#include "shoal/ops/slice.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// The bottoms one after the other along an axis.
//   bottom[k] (..., D_k, ...)   top[0] (..., sum of D_k, ...); all other sizes are equal
// backward overwrites each bottom's gradient with its part of the top's. One bottom: the top looks
// at its bytes. Throws ConfigError where other sizes differ.
class Concat final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.max_bottoms = Arity::kAny}; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const ConcatParameter& concat = param().concat_param();
    const Shape& first = bottom[0]->shape();
    const int axis = join_axis(param(), concat.has_axis(), concat.axis(), concat.has_concat_dim(),
                               concat.concat_dim(), "concat_dim");
    axis_ = axis_of(first, axis, "axis");
    std::vector<std::int64_t> dims = first.dims();
    for (std::size_t k = 1; k < bottom.size(); ++k) {
      const Shape& other = bottom[k]->shape();
      bool fits = other.axes() == first.axes();
      for (int i = 0; fits && i < first.axes(); ++i) fits = i == axis_ || other[i] == first[i];
      if (!fits)
        throw config_error(param(), "bottom '", bottom[k]->name, "' has shape ", other.str(),
                           ", bottom '", bottom[0]->name, "' ", first.str(),
                           "; they may differ only on axis ", axis_);
      dims[static_cast<std::size_t>(axis_)] += other[axis_];
    }
    top[0]->reshape(Shape(dims));
    if (bottom.size() == 1) {
      top[0]->data.share(bottom[0]->data);
      top[0]->grad.share(bottom[0]->grad);
    }
  }

  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    if (bottom.size() == 1) return;
    std::int64_t at = 0;
    for (std::size_t k = 0; k < bottom.size(); at += bottom[k++]->shape()[axis_])
      ops::paste(ctx, bottom[k]->data, top[0]->data, ops::along(top[0]->shape(), axis_, at));
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (bottom.size() == 1) return;
    std::int64_t at = 0;
    for (std::size_t k = 0; k < bottom.size(); at += bottom[k++]->shape()[axis_])
      if (propagate[k])
        ops::cut(ctx, top[0]->grad, ops::along(top[0]->shape(), axis_, at), bottom[k]->grad);
  }

 private:
  int axis_ = 0;
};

}  // namespace

std::unique_ptr<Layer> make_Concat(const LayerParameter& param) {
  return std::make_unique<Concat>(param);
}

}  // namespace shoal
