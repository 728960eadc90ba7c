// Upsample layer: larger planes, by the mask of a Pooling layer (SegNet's fork) or by repeating
// numbers (YOLO's forks).
#include "shoal/layers/layer.h"
#include "shoal/ops/rearrange.h"
#include "shoal/ops/reduce.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

void check_axes(const LayerParameter& layer, const Blob& bottom) {
  if (bottom.shape().axes() != 4)
    throw config_error(layer, "bottom '", bottom.name, "' must have 4 axes (N, C, H, W), not ",
                       bottom.shape().str());
}

// Repeats each number of a plane `scale` times on both axes: (N, C, H, W) to (N, C, scale H,
// scale W).
class Repeat final : public Layer {
 public:
  using Layer::Layer;
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }

  void setup(Context&, Bottoms, Tops) override {
    const UpsampleParameter& up = param().upsample_param();
    if (up.has_scale_h() || up.has_scale_w() || up.has_pad_out_h() || up.has_pad_out_w() ||
        up.has_upsample_h() || up.has_upsample_w())
      throw config_error(param(),
                         "with one bottom this is YOLO's Upsample, which has scale alone; "
                         "SegNet's takes a second bottom, the mask of max Pooling");
    scale_ = up.has_scale() ? up.scale() : 1;
    if (scale_ < 1 || scale_ > Shape::kMaxCount)
      throw config_error(param(), "scale is ", scale_, "; it must be 1 or more");
  }
  void reshape(Context&, Bottoms bottom, Tops top) override {
    check_axes(param(), *bottom[0]);
    const Shape& shape = bottom[0]->shape();
    planes_ = shape.count(0, 2);
    height_ = shape[2];
    width_ = shape[3];
    top[0]->reshape({shape[0], shape[1], height_ * scale_, width_ * scale_});
    gathered_.reshape(top[0]->shape());
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    const std::int64_t sizes[] = {planes_ * height_, scale_, width_, scale_},
                       steps[] = {width_, 0, 1, 0};
    ops::rearrange(ctx, bottom[0]->data, sizes, steps, top[0]->data);
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (!propagate[0]) return;
    const std::int64_t wide = width_ * scale_,
                       sizes[] = {planes_ * height_, width_, scale_, scale_},
                       steps[] = {wide * scale_, scale_, wide, 1};
    ops::rearrange(ctx, top[0]->grad, sizes, steps, gathered_);
    ops::reduce_rows(ctx, ops::Reduce::kSum, 1, gathered_, bottom[0]->grad);
  }

 private:
  std::int64_t scale_ = 1, planes_ = 0, height_ = 0, width_ = 0;
  Tensor gathered_;  // gradients of the copies of each number, side by side
};

// Puts each number where the mask says, and 0 elsewhere.
//   bottom[0] (N, C, H, W)   bottom[1] the mask, of that shape: places h * OW + w of the top
//   top[0] (N, C, OH, OW): upsample_h and upsample_w, or else OH = H scale_h - (1 if pad_out_h)
// The last of several numbers with one place stays; backward gives each the gradient of its place,
// as SegNet does, and the mask none. A place that the top has not ends the pass.
class Unpool final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 2}; }
  Reads reads() const override { return {.bottom_data = true, .top_data = false}; }
  Propagates propagates(int bottom) const override {
    return bottom == 0 ? Propagates::kYes : Propagates::kNothing;
  }
  Replays replays() const override { return {.forward = false}; }  // the host looks at a count

  void reshape(Context&, Bottoms bottom, Tops top) override {
    check_axes(param(), *bottom[0]);
    const Shape &shape = bottom[0]->shape(), &mask = bottom[1]->shape();
    if (shape != mask)
      throw config_error(param(), "bottom '", bottom[0]->name, "' has shape ", shape.str(),
                         ", the mask '", bottom[1]->name, "' ", mask.str(),
                         "; is it the second top of the Pooling that made the size of '",
                         bottom[0]->name, "'?");
    const UpsampleParameter& up = param().upsample_param();
    if (up.has_scale() && (up.has_scale_h() || up.has_scale_w()))
      throw config_error(param(), "scale is given, and scale_h or scale_w; give one of them");
    const auto size = [&](std::int64_t in, bool given, std::int64_t out, std::int64_t scale,
                          bool less) { return given ? out : in * scale - (less ? 1 : 0); };
    const std::int64_t height = size(shape[2], up.has_upsample_h(), up.upsample_h(),
                                     up.has_scale_h() ? up.scale_h() : up.scale(), up.pad_out_h()),
                       width = size(shape[3], up.has_upsample_w(), up.upsample_w(),
                                    up.has_scale_w() ? up.scale_w() : up.scale(), up.pad_out_w());
    if (height < 1 || width < 1 || height > Shape::kMaxCount || width > Shape::kMaxCount)
      throw config_error(param(), "the top would have ", height, " x ", width,
                         " places; bottom: ", shape.str());
    planes_ = shape.count(0, 2);
    top[0]->reshape({shape[0], shape[1], height, width});
    outside_.reshape({1});
  }
  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    ops::spread(ctx, planes_, bottom[0]->data, bottom[1]->data, top[0]->data, outside_);
    const float lost = outside_.host()[0];
    if (lost != 0)
      ctx.fail({Code::kData,
                str(lost, " numbers of the mask '", bottom[1]->name,
                    "' are no place of the top, whose planes have ", top[0]->shape()[2], " x ",
                    top[0]->shape()[3],
                    "; upsample_h and upsample_w must be the size of the bottom of its Pooling")});
  }
  void backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                Bottoms bottom) override {
    if (propagate[0]) ops::gather(ctx, planes_, top[0]->grad, bottom[1]->data, bottom[0]->grad);
  }

 private:
  std::int64_t planes_ = 0;
  Tensor outside_;  // (1)
};

}  // namespace

std::unique_ptr<Layer> make_Upsample(const LayerParameter& param) {
  if (param.bottom_size() == 2) return std::make_unique<Unpool>(param);
  return std::make_unique<Repeat>(param);
}

}  // namespace shoal
