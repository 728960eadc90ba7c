// Reduction layer: the sum, mean, absolute sum or square sum of the last axes.
#include "shoal/layers/layer.h"
#include "shoal/ops/reduce.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// The axes from `axis` on made into one number.
//   bottom[0] (A..., B...)
//   top[0] (A...) = coeff times the sum, the sum of absolute values or of squares, or the mean over
//   B
// backward overwrites bottom[0].grad; where a number is 0, that of the absolute value is 0.
class Reduction final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override {
    return {.bottom_data = kind() != ops::Reduce::kSum, .top_data = false};
  }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape& shape = bottom[0]->shape();
    const int axis =
        shape.axes() == 0 ? 0 : axis_of(shape, param().reduction_param().axis(), "axis");
    top[0]->reshape(
        Shape(std::vector<std::int64_t>(shape.dims().begin(), shape.dims().begin() + axis)));
    coeff_ = param().reduction_param().coeff();
    if (param().reduction_param().operation() == ReductionParameter::MEAN)
      coeff_ /= static_cast<float>(shape.count(axis));
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    ops::reduce_rows(ctx, kind(), coeff_, bottom[0]->data, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (propagate[0])
      ops::reduce_rows_backward(ctx, kind(), coeff_, top[0]->grad, bottom[0]->data,
                                bottom[0]->grad);
  }

 private:
  ops::Reduce kind() const {
    switch (param().reduction_param().operation()) {
      case ReductionParameter::ASUM: return ops::Reduce::kAbsSum;
      case ReductionParameter::SUMSQ: return ops::Reduce::kSquareSum;
      default: return ops::Reduce::kSum;
    }
  }
  float coeff_ = 1;
};

}  // namespace

std::unique_ptr<Layer> make_Reduction(const LayerParameter& param) {
  return std::make_unique<Reduction>(param);
}

}  // namespace shoal
