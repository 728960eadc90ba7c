// Axpy layer, of SENet's fork: channels of one blob times a factor each, plus another blob.
#include "shoal/layers/layer.h"
#include "shoal/ops/broadcast.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// top[0] = a x + y.
//   bottom[0] a (N, C) or (N, C, 1 ...)   bottom[1] x (N, C, ...)   bottom[2] y, as x
//   top[0] as x
// backward overwrites the gradients. Throws ConfigError, which names the shapes, if they differ.
class Axpy final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 3, .max_bottoms = 3}; }
  Reads reads() const override { return {.bottom_data = true, .top_data = false}; }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape &a = bottom[0]->shape(), &x = bottom[1]->shape(), &y = bottom[2]->shape();
    if (a.axes() < 2 || x.axes() < 2 || a[0] != x[0] || a[1] != x[1] || a.count(2) != 1)
      throw config_error(param(), "bottom '", bottom[0]->name, "', the factors, has shape ",
                         a.str(), "; it needs one number for each channel of '", bottom[1]->name,
                         "', whose shape is ", x.str());
    if (x != y)
      throw config_error(param(), "bottom '", bottom[1]->name, "' has shape ", x.str(),
                         ", bottom '", bottom[2]->name, "' ", y.str(), "; they are added");
    dims_ = {.outer = 1, .dim = a.count(), .inner = x.count(2)};
    top[0]->reshape(x);
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    ops::scale_and_shift(ctx, dims_, bottom[1]->data, bottom[0]->data, nullptr, top[0]->data);
    ops::axpy(ctx, 1, bottom[2]->data, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (propagate[0] || propagate[1])
      ops::scale_backward(ctx, dims_, top[0]->grad, bottom[1]->data, bottom[0]->data,
                          propagate[1] ? &bottom[1]->grad : nullptr,
                          {propagate[0] ? &bottom[0]->grad : nullptr, false}, {});
    if (propagate[2]) ops::copy(ctx, top[0]->grad, bottom[2]->grad);
  }

 private:
  ops::BroadcastDims dims_;
};

}  // namespace

std::unique_ptr<Layer> make_Axpy(const LayerParameter& param) {
  return std::make_unique<Axpy>(param);
}

}  // namespace shoal
