// Eltwise layer: the sum, product or maximum of several blobs, element by element.
#include "shoal/ops/eltwise.h"

#include <optional>

#include "shoal/layers/layer.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Two or more blobs of one shape, element by element.
//   bottom[k], top[0] any one shape;  top = sum of coeff[k] bottom[k], product of all, or the
//   largest
// backward overwrites the bottoms' gradients. A tie for the largest goes to the second of the first
// two bottoms; from the third on only a strictly larger one wins. A product's gradient multiplies
// the other bottoms, or with stable_prod_grad: false divides the top by the bottom (which then must
// not hold 0). The top's gradient lies in the first bottom's bytes, so that is overwritten last.
// SUM and MAX may be in place. SUM does the forward pass of the ReLU behind it. Throws ConfigError
// for shapes that differ and coefficients that do not fit.
class Eltwise final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = Arity::kAny}; }
  bool can_be_in_place() const override { return operation() != EltwiseParameter::PROD; }
  Reads reads() const override {
    const bool product = operation() == EltwiseParameter::PROD;
    return {.bottom_data = product, .top_data = product && !stable()};
  }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }

  void setup(Context&, Bottoms bottom, Tops) override {
    const auto& coeff = param().eltwise_param().coeff();
    if (!coeff.empty() && operation() != EltwiseParameter::SUM)
      throw config_error(param(), "coeff goes with operation SUM only");
    if (!coeff.empty() && coeff.size() != static_cast<int>(bottom.size()))
      throw config_error(param(), "has ", coeff.size(), " coeff for ", bottom.size(),
                         " bottoms; give none, or one a bottom");
    coeff_.assign(coeff.begin(), coeff.end());
  }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    for (const Blob* other : bottom)
      if (!(other->shape() == bottom[0]->shape()))
        throw config_error(param(), "bottom '", other->name, "' has shape ", other->shape().str(),
                           ", bottom '", bottom[0]->name, "' ", bottom[0]->shape().str(),
                           "; they must be equal");
    if (operation() == EltwiseParameter::MAX) winner_.reshape(bottom[0]->shape());
    if (top[0] == bottom[0]) return;
    top[0]->reshape(bottom[0]->shape());
    top[0]->grad.share(bottom[0]->grad);
  }

  TakesOver take_over(Context&, const Layer& next, bool) override {
    const float slope = next.param().relu_param().negative_slope();
    if (operation() != EltwiseParameter::SUM || next.param().type() != "ReLU" || !(slope >= 0))
      return TakesOver::kNothing;
    slope_ = slope;
    return TakesOver::kForward;
  }

  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    const std::vector<const Tensor*> x = data_of(bottom);
    if (operation() == EltwiseParameter::SUM)
      ops::weighted_sum(ctx, x, coeff_, top[0]->data, slope_);
    else if (operation() == EltwiseParameter::PROD)
      ops::product(ctx, x, top[0]->data);
    else
      ops::maximum(ctx, x, top[0]->data, winner_);
  }

  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    for (std::size_t k = bottom.size(); k-- > 0;)
      if (propagate[k]) backward_to(ctx, static_cast<int>(k), *top[0], bottom);
  }

 private:
  EltwiseParameter::EltwiseOp operation() const { return param().eltwise_param().operation(); }
  bool stable() const { return param().eltwise_param().stable_prod_grad(); }
  static std::vector<const Tensor*> data_of(Bottoms bottom) {
    std::vector<const Tensor*> data;
    for (const Blob* blob : bottom) data.push_back(&blob->data);
    return data;
  }
  void backward_to(Context& ctx, int k, Blob& top, Bottoms bottom) {
    Blob& blob = *bottom[static_cast<std::size_t>(k)];
    if (operation() == EltwiseParameter::MAX) {
      ops::take_where(ctx, winner_, k, top.grad, blob.grad);
    } else if (operation() == EltwiseParameter::PROD) {
      if (stable())
        ops::product_but_one(ctx, data_of(bottom), k, top.grad, blob.grad);
      else
        ops::product_over(ctx, top.grad, top.data, blob.data, blob.grad);
    } else if (coeff_.empty() || coeff_[static_cast<std::size_t>(k)] == 1) {
      ops::copy(ctx, top.grad, blob.grad);
    } else {
      const Tensor* grad = &top.grad;
      ops::weighted_sum(ctx, {&grad, 1}, {&coeff_[static_cast<std::size_t>(k)], 1}, blob.grad);
    }
  }
  std::vector<float> coeff_;
  std::optional<float> slope_;  // of the ReLU behind it, if this layer does it
  Tensor winner_;               // of MAX: which bottom
};

}  // namespace

std::unique_ptr<Layer> make_Eltwise(const LayerParameter& param) {
  return std::make_unique<Eltwise>(param);
}

}  // namespace shoal
