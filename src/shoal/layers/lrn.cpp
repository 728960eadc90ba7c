// LRN layer: local response normalization.
#include "shoal/layers/selected_kernel.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/normalize.h"

namespace shoal {
namespace {

// Local response normalization: x (k + alpha / n sum of x^2)^-beta over local_size neighbouring
// channels, or within a channel over a local_size x local_size window, where n is local_size^2 and
// k counts as 1. bottom[0] and top[0] are (N, C, H, W). Source: Caffe's LRNLayer.
class Lrn final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = true, .top_data = false}; }
  KeepsLayout keeps_layout() const override { return {.data = true, .grad = true}; }
  std::vector<ops::Choice> choices() const override { return op_.choices(); }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    const LRNParameter& lrn = param().lrn_param();
    const Shape& bottom = bottoms[0]->shape();
    if (lrn.local_size() % 2 == 0 || lrn.local_size() > kMostSize)
      throw config_error(param(), "local_size is ", lrn.local_size(),
                         "; it must be odd and at most ", kMostSize);
    if (bottom.axes() != 4)
      throw config_error(param(), "the bottom must have 4 axes (N, C, H, W), not ", bottom.str());
    const bool across = lrn.norm_region() == LRNParameter::ACROSS_CHANNELS;
    tops[0]->reshape(bottom);
    op_.select("lrn", ops::backend(ctx).lrn,
               {.region = across ? ops::LrnDesc::Region::kAcross : ops::LrnDesc::Region::kWithin,
                .images = bottom[0],
                .channels = bottom[1],
                .height = bottom[2],
                .width = bottom[3],
                .size = lrn.local_size(),
                .alpha = lrn.alpha(),
                .beta = lrn.beta(),
                .k = lrn.k()},
               ctx, engine_of(param(), lrn.engine()));
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    op_->forward(ctx, bottoms[0]->data, tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (propagate[0]) op_->backward(ctx, bottoms[0]->data, tops[0]->grad, bottoms[0]->grad);
  }

 private:
  static constexpr std::uint32_t kMostSize = 65535;
  SelectedKernel<ops::LrnDesc, ops::LrnKernel> op_;
};

}  // namespace

std::unique_ptr<Layer> make_LRN(const LayerParameter& param) {
  return std::make_unique<Lrn>(param);
}

}  // namespace shoal
