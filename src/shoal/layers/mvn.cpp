// MVN layer: subtracts the mean of each plane and divides by its deviation.
#include "shoal/layers/layer.h"
#include "shoal/ops/reduce.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Takes the mean of each plane away and divides by its deviation.
//   bottom[0] (N, C, H, W), missing axes at the end being 1   top[0] (N, C, H, W), always four axes
//   top = (x - mean) / (deviation + eps), or x - mean without normalize_variance; both are those of
//   each item's channel, or with across_channels of the whole item.   In place allowed.
// backward overwrites bottom[0].grad with the gradient for eps 0, divided by (deviation + eps):
// Caffe's way, kept.
class MVN final : public Layer {
 public:
  using Layer::Layer;
  bool can_be_in_place() const override { return true; }
  Reads reads() const override {
    return {.bottom_data = false, .top_data = param().mvn_param().normalize_variance()};
  }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    std::vector<std::int64_t> dims = bottom[0]->shape().dims();
    if (dims.size() > 4)
      throw config_error(param(), "takes at most 4 axes; the bottom's shape is ",
                         bottom[0]->shape().str());
    dims.resize(4, 1);
    rows_ = param().mvn_param().across_channels() ? dims[0] : dims[0] * dims[1];
    divisor_.reshape({param().mvn_param().normalize_variance() ? rows_ : 0});
    if (top[0] == bottom[0]) return;  // the layer that makes it has given it its shape
    top[0]->reshape(Shape(dims));
    top[0]->grad.share(bottom[0]->grad);
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    ops::standardize_rows(ctx, rows_, param().mvn_param().eps(), bottom[0]->data, top[0]->data,
                          divisor_);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (propagate[0])
      ops::standardize_rows_backward(ctx, rows_, top[0]->grad, top[0]->data, divisor_,
                                     bottom[0]->grad);
  }

 private:
  std::int64_t rows_ = 0;
  Tensor divisor_;  // of each row; empty: none
};

}  // namespace

std::unique_ptr<Layer> make_MVN(const LayerParameter& param) {
  return std::make_unique<MVN>(param);
}

}  // namespace shoal
