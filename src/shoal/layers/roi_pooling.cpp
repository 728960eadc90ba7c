// ROIPooling layer: the largest feature of each bin of a box.
#include "shoal/layers/roi_layer.h"

namespace shoal {
namespace {

// RoiLayer has the shapes. The bins are pooled_h x pooled_w. pad_ratio, which MS-CNN's fork has,
// moves each side of a box out by this part of the box. Source: Girshick, "Fast R-CNN", 2015.
class RoiPooling final : public RoiLayer {
 public:
  using RoiLayer::RoiLayer;
  void setup(Context&, Bottoms, Tops) override {
    check_bins(pooling().pooled_h(), pooling().pooled_w());
    check_scale(pooling().spatial_scale());
  }

 private:
  const ROIPoolingParameter& pooling() const { return param().roi_pooling_param(); }
  ops::RoiDesc describe(const Shape&) const override {
    return {.pool = ops::RoiDesc::Pool::kMax,
            .bins_h = pooling().pooled_h(),
            .bins_w = pooling().pooled_w(),
            .scale = pooling().spatial_scale(),
            .pad = pooling().pad_ratio()};
  }
};

}  // namespace

std::unique_ptr<Layer> make_ROIPooling(const LayerParameter& param) {
  return std::make_unique<RoiPooling>(param);
}

}  // namespace shoal
