// ROIAlign layer: features of a box by bilinear interpolation.
#include "shoal/base/log.h"
#include "shoal/layers/roi_layer.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// RoiLayer has the shapes. Two layers have this name, and the message that is given tells which:
//   roi_align_param     Mask R-CNN's: the mean of sampling_ratio^2 points in each of pooled_h x
//                       pooled_w bins (-1: as many points as a bin has places)
//   roi_pooling_param   Cascade R-CNN's: the (pooled_h + 1) x (pooled_w + 1) corners of the bins
// Sources: He et al., "Mask R-CNN", 2017; Cai and Vasconcelos, "Cascade R-CNN", 2018.
class RoiAlign final : public RoiLayer {
 public:
  using RoiLayer::RoiLayer;
  void setup(Context&, Bottoms, Tops) override {
    if (param().has_roi_align_param() == param().has_roi_pooling_param())
      throw config_error(param(),
                         "takes either roi_align_param, as Mask R-CNN's forks have it, or "
                         "roi_pooling_param, as Cascade R-CNN's fork has it");
    if (param().has_roi_pooling_param()) {
      const ROIPoolingParameter& corners = param().roi_pooling_param();
      check_bins(corners.pooled_h(), corners.pooled_w());
      check_scale(corners.spatial_scale());
      LOG(INFO) << layer_place(param())
                << ": roi_pooling_param makes it Cascade R-CNN's ROIAlign, whose top has the "
                << corners.pooled_h() + 1 << " x " << corners.pooled_w() + 1
                << " corners of the bins";
      return;
    }
    const ROIAlignParameter& align = param().roi_align_param();
    check_bins(align.pooled_h(), align.pooled_w());
    check_scale(align.spatial_scale());
    if (align.sampling_ratio() > 64)
      throw config_error(param(), "sampling_ratio is ", align.sampling_ratio(),
                         "; it is points along each side of a bin, at most 64");
    if (align.roi_end_mode() != 0)
      throw config_error(param(), "roi_end_mode is ", align.roi_end_mode(),
                         "; 0, which leaves the box as it is, is the only one here");
  }

 private:
  ops::RoiDesc describe(const Shape&) const override {
    if (param().has_roi_pooling_param()) {
      const ROIPoolingParameter& corners = param().roi_pooling_param();
      return {.pool = ops::RoiDesc::Pool::kCorners,
              .bins_h = std::int64_t{corners.pooled_h()} + 1,
              .bins_w = std::int64_t{corners.pooled_w()} + 1,
              .scale = corners.spatial_scale(),
              .pad = corners.pad_ratio()};
    }
    const ROIAlignParameter& align = param().roi_align_param();
    return {.pool = ops::RoiDesc::Pool::kAligned,
            .bins_h = align.pooled_h(),
            .bins_w = align.pooled_w(),
            .scale = align.spatial_scale(),
            .samples = align.sampling_ratio()};
  }
};

}  // namespace

std::unique_ptr<Layer> make_ROIAlign(const LayerParameter& param) {
  return std::make_unique<RoiAlign>(param);
}

}  // namespace shoal
