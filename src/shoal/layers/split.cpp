// Split layer: gives one blob to several readers and sums their gradients.
#include <vector>

#include "shoal/layers/layer.h"
#include "shoal/ops/eltwise.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// One blob for several readers; nets insert these themselves.
//   bottom[0] any shape   top[i] the same, looking at the same bytes
// backward overwrites bottom[0].grad with the sum of the tops' gradients without those that no
// layer wrote.
class Split final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.max_tops = Arity::kAny}; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }
  bool skips_missing_gradients() const override { return true; }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    for (Blob* blob : top) {
      blob->reshape(bottom[0]->shape());
      blob->data.share(bottom[0]->data);
    }
    if (top.size() == 1) top[0]->grad.share(bottom[0]->grad);
  }
  void forward(Context&, Bottoms, Tops) override {}
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (!propagate[0]) return;
    std::vector<const Tensor*> grads;
    for (std::size_t i = 0; i < top.size(); ++i)
      if (!missing_gradient(static_cast<int>(i))) grads.push_back(&top[i]->grad);
    if (grads.empty())
      ops::fill(ctx, 0, bottom[0]->grad);
    else if (grads.size() == 1)
      ops::copy(ctx, *grads[0], bottom[0]->grad);
    else
      ops::weighted_sum(ctx, grads, {}, bottom[0]->grad);
  }
};

}  // namespace

std::unique_ptr<Layer> make_Split(const LayerParameter& param) {
  return std::make_unique<Split>(param);
}

}  // namespace shoal
