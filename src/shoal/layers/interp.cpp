// Interp layer, of DeepLab's and PSPNet's forks: images of another size, between neighbours.
#include "shoal/layers/layer.h"
#include "shoal/ops/rearrange.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Bilinear interpolation; the corners of the bottom come to lie on the corners of the top.
//   bottom[0] (N, C, H, W)   top[0] (N, C, OH, OW)
// Rows are left out first, -pad_beg at the top and -pad_end at the bottom, and columns likewise.
// With shrink_factor s alone OH = (H - 1) / s + 1, with zoom_factor z alone H + (H - 1) (z - 1);
// else height and width, if both are given; else both factors, the shrinking first. Throws
// ConfigError if none is given, or nothing is left.
class Interp final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape& shape = bottom[0]->shape();
    if (shape.axes() != 4)
      throw config_error(param(), "the bottom must have 4 axes (N, C, H, W), not ", shape.str());
    const InterpParameter& interp = param().interp_param();
    if (interp.pad_beg() > 0 || interp.pad_end() > 0)
      throw config_error(param(), "pad_beg is ", interp.pad_beg(), " and pad_end ",
                         interp.pad_end(), "; they cut rows and columns off: 0 or negative");
    height_ = axis(shape, 2, interp.height());
    width_ = axis(shape, 3, interp.width());
    top[0]->reshape({shape[0], shape[1], height_.out, width_.out});
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    ops::interpolate(ctx, height_, width_, bottom[0]->data, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (propagate[0])
      ops::interpolate_backward(ctx, height_, width_, top[0]->grad, bottom[0]->grad);
  }

 private:
  ops::InterpolatedAxis axis(const Shape& bottom, int axis, std::int64_t given) const {
    const InterpParameter& interp = param().interp_param();
    const std::int64_t cut = -std::int64_t{interp.pad_beg()},
                       in = bottom[axis] - cut + interp.pad_end();
    if (in < 1)
      throw config_error(param(), "pad_beg ", interp.pad_beg(), " and pad_end ", interp.pad_end(),
                         " leave nothing of axis ", axis, " of the bottom's shape ", bottom.str());
    const std::int64_t shrink = interp.shrink_factor(), zoom = interp.zoom_factor();
    if (shrink < 1 || zoom < 1)
      throw config_error(param(), "shrink_factor is ", shrink, " and zoom_factor ", zoom,
                         "; both must be 1 or more");
    const bool shrinks = interp.has_shrink_factor(), zooms = interp.has_zoom_factor(),
               sized = interp.has_height() && interp.has_width();
    if (!shrinks && !zooms && !sized)
      throw config_error(param(),
                         "interp_param needs height and width, or zoom_factor or "
                         "shrink_factor");
    std::int64_t out = given;
    if (shrinks != zooms || !sized) {
      out = (in - 1) / shrink + 1;
      out += (out - 1) * (zoom - 1);
    }
    if (out < 1 || out > Shape::kMaxCount)
      throw config_error(param(), axis == 2 ? "height" : "width", " of the top would be ", out,
                         "; it must be from 1 to ", Shape::kMaxCount);
    return {.size = bottom[axis], .cut = cut, .in = in, .out = out};
  }
  ops::InterpolatedAxis height_, width_;
};

}  // namespace

std::unique_ptr<Layer> make_Interp(const LayerParameter& param) {
  return std::make_unique<Interp>(param);
}

}  // namespace shoal
