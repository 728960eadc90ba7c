// Normalize layer, of the SSD fork: divides by the length of vectors, and scales.
#include "shoal/layers/layer.h"
#include "shoal/ops/broadcast.h"
#include "shoal/ops/eltwise.h"
#include "shoal/ops/pointwise.h"
#include "shoal/ops/rearrange.h"
#include "shoal/ops/reduce.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// top = scale x / sqrt(sum of x^2 + eps); the sum is over the channels at each place, or with
// across_spatial over all numbers of an item.
//   bottom[0], top[0] (N, C, ...)   param: scale (), or (C) unless channel_shared
// backward overwrites the bottom's gradient and adds to the scale's. Source: SSD's NormalizeLayer.
class Normalize final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = true, .top_data = false}; }

  void setup(Context& ctx, Bottoms bottom, Tops) override {
    const NormalizeParameter& norm = param().norm_param();
    check(bottom[0]->shape());
    FillerParameter one;
    one.set_value(1);
    add_param(ctx, norm.channel_shared() ? Shape() : Shape{bottom[0]->shape()[1]},
              norm.has_scale_filler() ? norm.scale_filler() : one);
  }
  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape& shape = bottom[0]->shape();
    check(shape);
    const bool shared = param().norm_param().channel_shared();
    if (!shared && shape[1] != params()[0]->shape()[0])
      throw config_error(param(), "was made for ", params()[0]->shape()[0],
                         " channels; the bottom is now ", shape.str());
    images_ = shape[0];
    channels_ = shape[1];
    places_ = shape.count(2);
    const bool across = param().norm_param().across_spatial();
    rows_ = {.outer = 1,
             .dim = across ? images_ : images_ * places_,
             .inner = across ? channels_ * places_ : channels_};
    scaled_ = shared ? ops::BroadcastDims{.outer = 1, .dim = 1, .inner = shape.count()}
                     : ops::BroadcastDims{.outer = images_, .dim = channels_, .inner = places_};
    for (Tensor* one : {&vectors_, &unit_, &gradient_}) one->reshape(shape);
    for (Tensor* one : {&sums_, &inverse_, &dots_}) one->reshape({rows_.dim});
    top[0]->reshape(shape);
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    measure(ctx, bottom);
    ops::scale_and_shift(ctx, rows_, vectors_, inverse_, nullptr, gradient_);
    from_vectors(ctx, gradient_, unit_);
    ops::scale_and_shift(ctx, scaled_, unit_, params()[0]->data, nullptr, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (param_propagates(0))
      ops::scale_backward(ctx, scaled_, top[0]->grad, unit_, params()[0]->data, nullptr,
                          {&params()[0]->grad, true}, {});
    if (!propagate[0]) return;
    // The gradient of u = x r, with r = (sum + eps)^-1/2, from g, that of u, is
    //   g r - x r^3 (sum of g x)
    measure(ctx, bottom);
    Tensor& out = bottom[0]->grad;
    ops::scale_and_shift(ctx, scaled_, top[0]->grad, params()[0]->data, nullptr, out);
    to_vectors(ctx, out, gradient_);
    ops::scale_backward(ctx, rows_, gradient_, vectors_, inverse_, &gradient_, {&dots_, false}, {});
    ops::map(ctx, {ops::MapKind::kPower, 3, 1, 0}, inverse_, sums_);
    const Tensor* const factors[] = {&sums_, &dots_};
    ops::product(ctx, factors, sums_);
    ops::scale_and_shift(ctx, rows_, vectors_, sums_, nullptr, vectors_);
    ops::axpy(ctx, -1, vectors_, gradient_);
    from_vectors(ctx, gradient_, out);
  }

 private:
  void check(const Shape& shape) const {
    if (shape.axes() < 2)
      throw config_error(param(), "the bottom must have 2 axes or more (N, C, ...), not ",
                         shape.str());
  }
  // Brings the numbers that one length is of side by side, and back.
  void to_vectors(Context& ctx, const Tensor& x, Tensor& y) const {
    move(ctx, x, channels_, places_, y);
  }
  void from_vectors(Context& ctx, const Tensor& x, Tensor& y) const {
    move(ctx, x, places_, channels_, y);
  }
  void move(Context& ctx, const Tensor& x, std::int64_t rows, std::int64_t columns,
            Tensor& y) const {
    if (param().norm_param().across_spatial()) return ops::copy(ctx, x, y);
    const std::int64_t sizes[] = {images_, columns, rows}, steps[] = {rows * columns, 1, columns};
    ops::rearrange(ctx, x, sizes, steps, y);
  }
  void measure(Context& ctx, Bottoms bottom) {
    to_vectors(ctx, bottom[0]->data, vectors_);
    ops::reduce_rows(ctx, ops::Reduce::kSquareSum, 1, vectors_, sums_);
    ops::map(ctx, {ops::MapKind::kPower, -0.5f, 1, param().norm_param().eps()}, sums_, inverse_);
  }

  std::int64_t images_ = 0, channels_ = 0, places_ = 0;
  ops::BroadcastDims rows_, scaled_;
  Tensor vectors_, gradient_;     // in the order of vectors
  Tensor unit_;                   // x over its length, of the last forward
  Tensor sums_, inverse_, dots_;  // one a vector
};

}  // namespace

std::unique_ptr<Layer> make_Normalize(const LayerParameter& param) {
  return std::make_unique<Normalize>(param);
}

}  // namespace shoal
