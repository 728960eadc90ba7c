// LSTM layer: long short-term memory over sequences.
#include "shoal/layers/recurrent.h"
#include "shoal/ops/recurrent.h"
#include "shoal/ops/vector.h"

namespace shoal {
namespace {

// A Recurrent of the states h and c, whose output is h. Step t's input is of the gates i, f, o and
// g, in this order (ops/recurrent.h). Source: Caffe's LSTMLayer.
class Lstm final : public Recurrent {
 public:
  explicit Lstm(const LayerParameter& param) : Recurrent(param, 4, 2) {}

 private:
  Tensor& forward_cell(Context& ctx, Step& step, const std::vector<Tensor>& before) override {
    ops::lstm_step(ctx, step.cont, step.in, before[kC], step.states[kC], step.states[kH]);
    return step.states[kH];
  }
  void backward_cell(Context& ctx, const Step& step, const std::vector<Tensor>& before,
                     Tensor& out_grad, const Tensor* h_grad, Tensor& in_grad) override {
    const bool is_last = h_grad == nullptr;
    if (is_last)
      c_grad_.reshape(out_grad.shape());
    else
      ops::axpy(ctx, 1, *h_grad, out_grad);
    ops::lstm_step_backward(ctx, step.cont, step.in, before[kC], step.states[kC],
                            is_last ? nullptr : &c_grad_, out_grad, in_grad, c_grad_);
  }

  static constexpr std::size_t kH = 0, kC = 1;
  Tensor c_grad_;  // of the step before the one that was last gone through
};

}  // namespace

std::unique_ptr<Layer> make_LSTM(const LayerParameter& param) {
  return std::make_unique<Lstm>(param);
}

}  // namespace shoal
