// LSTMUnit layer: one step of a long short-term memory.
#include "shoal/layers/layer.h"
#include "shoal/ops/recurrent.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// One step for N sequences of D units (ops/recurrent.h).
//   bottom[0] c of the step before (1, N, D)   bottom[1] the gates' inputs (1, N, 4 D): i, f, o, g
//   bottom[2] (1, N): 0 where a sequence begins, 1 where it goes on
//   top[0] c (1, N, D)   top[1] h (1, N, D)
// backward overwrites the gradients of both first bottoms. Source: Caffe's LSTMUnitLayer.
class LstmUnit final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 3, .max_bottoms = 3, .min_tops = 2, .max_tops = 2};
  }
  Propagates propagates(int bottom) const override {
    return bottom == 2 ? Propagates::kRefuses : Propagates::kYes;
  }

  void reshape(Context&, Bottoms bottoms, Tops tops) override {
    const Shape &c = bottoms[0]->shape(), &gates = bottoms[1]->shape(), &cont = bottoms[2]->shape();
    if (c.axes() != 3 || c[0] != 1 || gates != Shape{1, c[1], 4 * c[2]} || cont != Shape{1, c[1]})
      throw config_error(param(), "bottoms are ", c.str(), ", ", gates.str(), " and ", cont.str(),
                         "; they must be (1, N, D), (1, N, 4 D) and (1, N)");
    for (Blob* const top : tops) top->reshape(c);
    unwanted_.reshape(gates);
  }
  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    ops::lstm_step(ctx, bottoms[2]->data, bottoms[1]->data, bottoms[0]->data, tops[0]->data,
                   tops[1]->data);
  }
  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (!propagate[0] && !propagate[1]) return;
    ops::lstm_step_backward(ctx, bottoms[2]->data, bottoms[1]->data, bottoms[0]->data,
                            tops[0]->data, &tops[0]->grad, tops[1]->grad,
                            propagate[1] ? bottoms[1]->grad : unwanted_,
                            propagate[0] ? bottoms[0]->grad : unwanted_);
  }

 private:
  Tensor unwanted_;  // where a gradient goes that is not asked for
};

}  // namespace

std::unique_ptr<Layer> make_LSTMUnit(const LayerParameter& param) {
  return std::make_unique<LstmUnit>(param);
}

}  // namespace shoal
