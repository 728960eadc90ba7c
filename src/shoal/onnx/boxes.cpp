// Converts PriorBox, and layers that pool features within boxes.
#include "shoal/onnx/box_values.h"
#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// Returns the rois as (R, 5), each side moved out by a part of the box's length.
std::string rois_of(LayerExport& x, float pad) {
  Dims dims{x.bottom_dims(1)[0], {5}};
  const std::string rois = dims == x.bottom_dims(1) ? x.in(1) : x.reshaped(x.in(1), dims);
  if (pad == 0) return rois;
  const std::string low = cut(x, rois, 2, 1, 3), high = cut(x, rois, 2, 3, 5);
  const std::string length = x.add("Add", {x.add("Sub", {high, low}), x.number(1)});
  const std::string more = x.add("Mul", {length, x.number(pad)});
  return joined(x, {cut(x, rois, 2, 0, 1), x.add("Sub", {low, more}), x.add("Add", {high, more})});
}

}  // namespace

// The boxes follow the shapes alone.
void convert_prior_box(LayerExport& x) {
  const std::span<const float> numbers = x.computed();
  x.give("Identity", {x.numbers({numbers.begin(), numbers.end()}, x.top().dims())});
}

void convert_roi_pooling(LayerExport& x) {
  const ROIPoolingParameter& pooling = x.param().roi_pooling_param();
  x.give("MaxRoiPool", {x.in(0), rois_of(x, pooling.pad_ratio())},
         {{"pooled_shape", Sizes{pooling.pooled_h(), pooling.pooled_w()}},
          {"spatial_scale", pooling.spatial_scale()}});
}

void convert_roi_align(LayerExport& x) {
  if (!x.param().has_roi_align_param())
    x.refuse("ONNX has no operator for the corners of bins (Cascade R-CNN's ROIAlign)");
  const ROIAlignParameter& align = x.param().roi_align_param();
  const std::string rois = rois_of(x, 0);
  const std::string image = x.reshaped(cut(x, rois, 2, 0, 1), {{0, Dim::Kind::kUnknown}});
  x.give("RoiAlign", {x.in(0), cut(x, rois, 2, 1, 5), x.add("Cast", {image}, {{"to", kInt64Type}})},
         {{"output_height", std::int64_t{align.pooled_h()}},
          {"output_width", std::int64_t{align.pooled_w()}},
          {"sampling_ratio", std::int64_t{std::max(0, align.sampling_ratio())}},
          {"spatial_scale", align.spatial_scale()}});
}

}  // namespace shoal::onnx
