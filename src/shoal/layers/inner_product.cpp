// InnerProduct layer: each output is a weighted sum of all inputs.
#include "shoal/layers/factored.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/gemm.h"

namespace shoal {
namespace {

// Every output is a weighted sum of all inputs.
//   bottom[0] (M..., K...), M the axes before `axis`, K all from it on
//   top[0] (M..., N), N = num_output   params: weight (N, K), or (K, N) with transpose; bias (N)
// Does the work of the ReLU behind it.
// Source: Caffe's InnerProductLayer.
class InnerProduct final : public Layer, public Factored {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = true, .top_data = desc_.relu.has_value()}; }
  KeepsLayout keeps_layout() const override { return {.data = false, .grad = true}; }
  Replays replays() const override { return {.backward = sink_ == nullptr}; }
  std::vector<ops::Choice> choices() const override { return op_.choices(); }

  std::int64_t multiply_adds() const override { return desc_.rows * desc_.inputs * desc_.outputs; }

  void setup(Context& ctx, Bottoms bottoms, Tops) override {
    const InnerProductParameter& ip = param().inner_product_param();
    const Shape& bottom = bottoms[0]->shape();
    axis_ = axis_of(bottom, ip.axis(), "axis");
    desc_ = {
        .inputs = bottom.count(axis_), .outputs = ip.num_output(), .weight_is_kn = ip.transpose()};
    if (desc_.outputs < 1)
      throw config_error(param(), "num_output must be given, and be 1 or more");
    add_param(
        ctx,
        ip.transpose() ? Shape{desc_.inputs, desc_.outputs} : Shape{desc_.outputs, desc_.inputs},
        ip.weight_filler());
    has_bias_ = ip.bias_term();
    if (has_bias_) add_param(ctx, Shape{desc_.outputs}, ip.bias_filler());
  }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    const Shape& bottom = bottoms[0]->shape();
    if (bottom.axes() < axis_ || bottom.count(axis_) != desc_.inputs)
      throw config_error(param(), "was made for ", desc_.inputs, " inputs from axis ", axis_,
                         " on; the bottom is now ", bottom.str());
    desc_.rows = bottom.count(0, axis_);
    std::vector<std::int64_t> top(bottom.dims().begin(), bottom.dims().begin() + axis_);
    top.push_back(desc_.outputs);
    tops[0]->reshape(Shape(top));
    choose(ctx);
  }

  TakesOver take_over(Context& ctx, const Layer& next, bool) override {
    const float slope = next.param().relu_param().negative_slope();
    if (next.param().type() != "ReLU" || !(slope >= 0)) return TakesOver::kNothing;
    desc_.relu = slope;
    choose(ctx);
    return TakesOver::kBoth;
  }

  // Factors that come later add to it.
  bool overwrite_gradient(Context& ctx, int of) override {
    if (of != 0 || sink_ != nullptr) return false;
    desc_.overwrites_dw = true;
    choose(ctx);
    return true;
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    op_->forward(ctx, bottoms[0]->data, params()[0]->data, has_bias_ ? &params()[1]->data : nullptr,
                 tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    Tensor* bias = sink_ ? nullptr : gradient(1);
    if (desc_.relu && ops::relu_and_bias_gradient(ctx, *desc_.relu, desc_.outputs, 1, tops[0]->data,
                                                  tops[0]->grad, bias))
      bias = nullptr;
    if (sink_) sink_->take(ctx.share().replica, tops[0]->grad, bottoms[0]->data);
    op_->backward(ctx, bottoms[0]->data, params()[0]->data, tops[0]->grad,
                  propagate[0] ? &bottoms[0]->grad : nullptr, sink_ ? nullptr : gradient(0), bias);
  }

  Sizes factor_sizes() const override { return {desc_.rows, desc_.outputs, desc_.inputs}; }
  void give_factors_to(FactorSink* sink) override { sink_ = sink; }
  FactorSink* factors_go_to() const override { return sink_; }
  void add_gradients(Context& ctx, const Tensor& top_grad, const Tensor& bottom) override {
    const std::int64_t rows = top_grad.count() / desc_.outputs;
    const Tensor &left = desc_.weight_is_kn ? bottom : top_grad,
                 &right = desc_.weight_is_kn ? top_grad : bottom;
    if (Tensor* weight = gradient(0))
      ops::gemm(ctx, ops::Trans::kYes, ops::Trans::kNo, left.count() / rows, right.count() / rows,
                rows, 1, left, right, 1, *weight);
    if (Tensor* bias = gradient(1)) ops::add_bias_gradient(ctx, desc_.outputs, 1, top_grad, *bias);
  }

 private:
  void choose(Context& ctx) {
    op_.select("dense", ops::backend(ctx).dense, desc_, ctx, engine_of(param()));
  }
  // Returns the gradient of a param that learns; else null.
  Tensor* gradient(int param) const {
    const bool learns = param < (has_bias_ ? 2 : 1) && param_propagates(param);
    return learns ? &params()[static_cast<std::size_t>(param)]->grad : nullptr;
  }

  FactorSink* sink_ = nullptr;
  int axis_ = 1;
  bool has_bias_ = true;
  ops::DenseDesc desc_;
  SelectedKernel<ops::DenseDesc, ops::DenseKernel> op_;
};

}  // namespace

std::unique_ptr<Layer> make_InnerProduct(const LayerParameter& param) {
  return std::make_unique<InnerProduct>(param);
}

}  // namespace shoal
