// Implements what the layers that pool features within boxes have in common.
#include "shoal/layers/roi_layer.h"

#include <cmath>

#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"

namespace shoal {

bool check_rois(Context& ctx, const Blob& rois, std::int64_t images) {
  constexpr float kFarthest = 1e6f;
  const std::span<const float> numbers = rois.data.host();
  for (std::size_t at = 0; at < numbers.size(); ++at) {
    const std::size_t roi = at / 5, field = at % 5;
    const float number = numbers[at];
    const bool is_image =
        number >= 0 && number < static_cast<float>(images) && number == std::floor(number);
    if (field == 0 ? is_image : std::fabs(number) <= kFarthest) continue;
    const std::string wrong = field == 0
                                  ? str("its image is ", number, ", but the features are of ",
                                        images, images == 1 ? " image" : " images")
                                  : str("its number ", field, " is ", number);
    ctx.fail(
        {Code::kData, str("roi ", roi, " of '", rois.name, "': ", wrong,
                          "; a roi is image, xmin, ymin, xmax, ymax, the image counted from 0")});
    return false;
  }
  return true;
}

void RoiLayer::check_bins(std::uint32_t pooled_h, std::uint32_t pooled_w) const {
  constexpr std::uint32_t kMost = 1024;
  if (pooled_h < 1 || pooled_w < 1 || pooled_h > kMost || pooled_w > kMost)
    throw config_error(param(), "pooled_h is ", pooled_h, " and pooled_w ", pooled_w,
                       "; both must be 1 or more, as 7 and 7 for VGG16, and at most ", kMost);
}

void RoiLayer::check_scale(float scale) const {
  if (!(scale > 0))
    throw config_error(param(), "spatial_scale is ", scale,
                       "; it must be above 0: one over the stride of the features, as 0.0625");
}

void RoiLayer::reshape(Context&, Bottoms bottom, Tops top) {
  const Shape &features = bottom[0]->shape(), &rois = bottom[1]->shape();
  if (features.axes() != 4)
    throw config_error(param(), "bottom '", bottom[0]->name,
                       "', the features, must have 4 axes (N, C, H, W), not ", features.str());
  if (rois.axes() < 2 || rois.count(1) != 5)
    throw config_error(param(), "bottom '", bottom[1]->name,
                       "', the rois, must have shape (R, 5): image, xmin, ymin, xmax, ymax; it is ",
                       rois.str());
  desc_ = describe(features);
  desc_.images = features[0];
  desc_.channels = features[1];
  desc_.height = features[2];
  desc_.width = features[3];
  desc_.rois = rois[0];
  top[0]->reshape(Shape{rois[0], desc_.pooled_channels(), desc_.bins_h, desc_.bins_w});
  rois_.reshape(Shape{rois[0], 5});
  if (desc_.pool == ops::RoiDesc::Pool::kMax) winners_.reshape(top[0]->shape());
}

void RoiLayer::forward(Context& ctx, Bottoms bottom, Tops top) {
  if (!check_rois(ctx, *bottom[1], desc_.images)) return;
  ops::copy(ctx, bottom[1]->data, rois_);
  ops::roi_pool(ctx, desc_, bottom[0]->data, rois_, top[0]->data, winners_);
}

void RoiLayer::backward(Context& ctx, Tops top, const std::vector<bool>& propagate,
                        Bottoms bottom) {
  if (propagate[0])
    ops::roi_pool_backward(ctx, desc_, top[0]->grad, rois_, winners_, bottom[0]->grad);
}

}  // namespace shoal
