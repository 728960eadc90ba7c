// PSROIPooling layer: the mean of each bin of a box, from a channel of the bin's own.
#include "shoal/layers/roi_layer.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// RoiLayer has the shapes. The top is (R, output_dim, group_size, group_size), of features with
// output_dim * group_size^2 channels. Source: Dai et al., "R-FCN", 2016.
class PsRoiPooling final : public RoiLayer {
 public:
  using RoiLayer::RoiLayer;
  void setup(Context&, Bottoms, Tops) override {
    if (!pooling().has_spatial_scale() || pooling().output_dim() < 1 || pooling().group_size() < 1)
      throw config_error(param(), "needs spatial_scale, output_dim and group_size, the latter two ",
                         "1 or more; psroi_pooling_param gives ", pooling().spatial_scale(), ", ",
                         pooling().output_dim(), " and ", pooling().group_size());
    check_scale(pooling().spatial_scale());
    check_bins(static_cast<std::uint32_t>(pooling().group_size()),
               static_cast<std::uint32_t>(pooling().group_size()));
  }

 private:
  const PSROIPoolingParameter& pooling() const { return param().psroi_pooling_param(); }
  ops::RoiDesc describe(const Shape& features) const override {
    const std::int64_t group = pooling().group_size(), dim = pooling().output_dim();
    if (features[1] != dim * group * group)
      throw config_error(param(), "bottom '", param().bottom(0), "' of shape ", features.str(),
                         " has ", features[1], " channels; output_dim ", dim, " and group_size ",
                         group, " need ", dim * group * group,
                         ": num_output of the convolution before it");
    return {.pool = ops::RoiDesc::Pool::kGrouped,
            .bins_h = group,
            .bins_w = group,
            .scale = pooling().spatial_scale()};
  }
};

}  // namespace

std::unique_ptr<Layer> make_PSROIPooling(const LayerParameter& param) {
  return std::make_unique<PsRoiPooling>(param);
}

}  // namespace shoal
