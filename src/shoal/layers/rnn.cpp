// RNN layer: a recurrent net of one hidden layer over sequences.
#include "shoal/layers/recurrent.h"
#include "shoal/ops/pointwise.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// A Recurrent of the state h = tanh(its step's input), whose output is tanh(W_o h + b_o).
//   further params: W_o (D, D), b_o (D)
// Source: Caffe's RNNLayer.
class Rnn final : public Recurrent {
 public:
  explicit Rnn(const LayerParameter& param) : Recurrent(param, 1, 1) {}

 private:
  void add_cell_params(Context& ctx) override {
    add_param(ctx, {units(), units()}, param().recurrent_param().weight_filler());
    add_param(ctx, {units()}, param().recurrent_param().bias_filler());
  }
  std::int64_t cell_multiply_adds() const override { return sequences() * units() * units(); }

  Tensor& forward_cell(Context& ctx, Step& step, const std::vector<Tensor>&) override {
    Tensor& h = step.states[0];
    ops::map(ctx, kTanh, step.in, h);
    ops::gemm(ctx, ops::Trans::kNo, ops::Trans::kYes, sequences(), units(), units(), 1, h, weight(),
              0, step.out);
    ops::add_bias(ctx, units(), 1, params()[bias_at()]->data, step.out);
    ops::map(ctx, kTanh, step.out, step.out);
    return step.out;
  }
  void backward_cell(Context& ctx, const Step& step, const std::vector<Tensor>&, Tensor& out_grad,
                     const Tensor* h_grad, Tensor& in_grad) override {
    const Tensor& h = step.states[0];
    ops::map_backward(ctx, kTanh, step.out, out_grad, out_grad);
    if (Tensor* const sums = gradient(cell_params()))
      ops::gemm(ctx, ops::Trans::kYes, ops::Trans::kNo, units(), units(), sequences(), 1, out_grad,
                h, 1, *sums);
    if (Tensor* const sums = gradient(cell_params() + 1))
      ops::add_bias_gradient(ctx, units(), 1, out_grad, *sums);
    if (h_grad != nullptr) ops::copy(ctx, *h_grad, in_grad);
    ops::gemm(ctx, ops::Trans::kNo, ops::Trans::kNo, sequences(), units(), units(), 1, out_grad,
              weight(), h_grad != nullptr ? 1.0f : 0.0f, in_grad);
    ops::map_backward(ctx, kTanh, h, in_grad, in_grad);
  }

  std::size_t bias_at() const { return static_cast<std::size_t>(cell_params()) + 1; }
  const Tensor& weight() const { return params()[bias_at() - 1]->data; }

  static constexpr ops::Map kTanh{ops::MapKind::kTanh};
};

}  // namespace

std::unique_ptr<Layer> make_RNN(const LayerParameter& param) {
  return std::make_unique<Rnn>(param);
}

}  // namespace shoal
