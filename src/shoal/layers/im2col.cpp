// Im2col layer: lays out as channels what each window of a convolution sees.
#include "shoal/layers/selected_kernel.h"
#include "shoal/layers/window.h"

#include "shoal/ops/backend.h"

namespace shoal {
namespace {

// Each window of a convolution, laid out as channels.
//   bottom[0] (N..., C, I...)   top[0] (N..., C * kernel..., O...), O as Convolution's; zeros where
//   a window looks outside
// Source: Caffe's Im2colLayer.
class Im2col final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  std::vector<ops::Choice> choices() const override { return op_.choices(); }

  void reshape(Context& ctx, Bottoms bottoms, Tops tops) override {
    const Shape& bottom = bottoms[0]->shape();
    const int channel_axis = axis_of(bottom, param().convolution_param().axis(), "axis"),
              axes = bottom.axes() - channel_axis - 1;
    if (axes < 1)
      throw config_error(param(), "the bottom has no spatial axes behind axis ", channel_axis,
                         "; bottom: ", bottom.str());
    ops::ConvDesc desc{.images = bottom.count(0, channel_axis),
                       .channels = bottom[channel_axis],
                       .axes = read_window(param(), axes)};
    slide_over(param(), bottom, channel_axis + 1, desc.axes);
    std::vector<std::int64_t> top(bottom.dims().begin(), bottom.dims().begin() + channel_axis);
    top.push_back(desc.channels * desc.taps());
    for (const ops::WindowAxis& axis : desc.axes) top.push_back(axis.out);
    tops[0]->reshape(Shape(top));
    op_.select("im2col", ops::backend(ctx).im2col, desc, ctx,
               engine_of(param(), param().convolution_param().engine()));
  }

  void forward(Context& ctx, Bottoms bottoms, Tops tops) override {
    op_->forward(ctx, bottoms[0]->data, tops[0]->data);
  }

  void backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                Bottoms bottoms) override {
    if (propagate[0]) op_->backward(ctx, tops[0]->grad, bottoms[0]->grad);
  }

 private:
  SelectedKernel<ops::ConvDesc, ops::Im2colKernel> op_;
};

}  // namespace

std::unique_ptr<Layer> make_Im2col(const LayerParameter& param) {
  return std::make_unique<Im2col>(param);
}

}  // namespace shoal
