// Softmax layer: turns scores into probabilities along an axis.
#include "shoal/ops/softmax.h"
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/backend.h"

namespace shoal {
namespace {

// Computes exp(x) over the sum of exp along `axis`, with the largest x subtracted first. top[0] has
// the bottom's shape; in place works.
class Softmax final : public Layer {
 public:
  using Layer::Layer;
  bool can_be_in_place() const override { return true; }
  Reads reads() const override { return {.bottom_data = false, .top_data = true}; }
  std::vector<ops::Choice> choices() const override { return op_.choices(); }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    const Shape bottom = bottoms[0]->shape();
    const int axis = axis_of(bottom, param().softmax_param().axis(), "axis");
    tops[0]->reshape(bottom);
    op_.select("softmax", ops::backend(ctx).softmax,
               {bottom.count(0, axis), bottom[axis], bottom.count(axis + 1)}, ctx,
               engine_of(param(), param().softmax_param().engine()));
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    op_->forward(ctx, bottoms[0]->data, tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (propagate[0]) op_->backward(ctx, tops[0]->data, tops[0]->grad, bottoms[0]->grad);
  }

 private:
  SelectedKernel<ops::SoftmaxDesc, ops::SoftmaxKernel> op_;
};

}  // namespace

std::unique_ptr<Layer> make_Softmax(const LayerParameter& param) {
  return std::make_unique<Softmax>(param);
}

}  // namespace shoal
