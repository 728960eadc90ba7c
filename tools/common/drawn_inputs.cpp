#include "common/drawn_inputs.h"

#include <algorithm>

#include "shoal/onnx/export.h"
#include "shoal/proto/net.pb.h"

namespace shoal {
namespace {

// A use of an input: bottom `bottom` of layer `layer`; layer -1: anything.
struct Use {
  int layer = -1, bottom = 0;
};

// Returns the first use of a blob that layers do not merely hand on.
Use use_of(const Net& net, const Blob& blob, int from) {
  for (int i = from; i < static_cast<int>(net.layers().size()); ++i) {
    const Bottoms bottoms = net.bottoms(i);
    for (int b = 0; b < static_cast<int>(bottoms.size()); ++b) {
      if (bottoms[static_cast<std::size_t>(b)] != &blob) continue;
      const std::string& type = net.layers()[static_cast<std::size_t>(i)]->type();
      if (type != "Split" && type != "Reshape" && type != "Flatten") return {i, b};
      for (const Blob* top : net.tops(i))
        if (const Use use = use_of(net, *top, i + 1); use.layer >= 0) return use;
    }
  }
  return {};
}

enum class Kind { kNumbers, kWhole, kMarks, kRois, kImageSizes };

Kind kind_of(const Layer& layer, int bottom, int bottoms) {
  const std::string& type = layer.type();
  if (type == "Embed" || (type == "BatchReindex" && bottom == 1)) return Kind::kWhole;
  if (((type == "LSTM" || type == "RNN") && bottom == 1) || (type == "LSTMUnit" && bottom == 2) ||
      (type == "Filter" && bottom == bottoms - 1))
    return Kind::kMarks;
  if ((type == "ROIPooling" || type == "ROIAlign" || type == "PSROIPooling") && bottom == 1)
    return Kind::kRois;
  return type == "Proposal" && bottom == 2 ? Kind::kImageSizes : Kind::kNumbers;
}

float scale_of(const LayerParameter& layer) {
  if (layer.type() == "PSROIPooling") return layer.psroi_pooling_param().spatial_scale();
  return layer.has_roi_align_param() ? layer.roi_align_param().spatial_scale()
                                     : layer.roi_pooling_param().spatial_scale();
}

void draw_rois(const LayerParameter& layer, const Shape& features, std::span<float> rois,
               Random& random) {
  const float width = static_cast<float>(features[3]) / scale_of(layer),
              height = static_cast<float>(features[2]) / scale_of(layer);
  for (std::size_t at = 0; at + 5 <= rois.size(); at += 5) {
    rois[at] = static_cast<float>(random.below(static_cast<std::uint64_t>(features[0])));
    rois[at + 1] = random.uniform(0, width / 2);
    rois[at + 2] = random.uniform(0, height / 2);
    rois[at + 3] = rois[at + 1] + random.uniform(0, width / 2);
    rois[at + 4] = rois[at + 2] + random.uniform(0, height / 2);
  }
}

}  // namespace

void draw_input(const Net& net, Blob& input, float low, float high, Random& random) {
  const Use use = use_of(net, input, 0);
  const std::span<float> numbers = input.data.host_out();
  for (float& number : numbers) number = random.uniform(low, high);
  if (use.layer < 0) return;
  const Layer& layer = *net.layers()[static_cast<std::size_t>(use.layer)];
  const Bottoms bottoms = net.bottoms(use.layer);
  const Shape& first = bottoms[0]->shape();
  const Kind kind = kind_of(layer, use.bottom, static_cast<int>(bottoms.size()));
  if (kind == Kind::kWhole) {
    const std::uint64_t rows = layer.type() == "Embed" ? layer.param().embed_param().input_dim()
                                                       : static_cast<std::uint64_t>(first[0]);
    for (float& number : numbers) number = static_cast<float>(random.below(rows));
  } else if (kind == Kind::kMarks) {
    for (float& number : numbers) number = static_cast<float>(random.below(2));
    if (layer.type() == "LSTM" || layer.type() == "RNN")
      std::ranges::fill(numbers.first(static_cast<std::size_t>(first[1])), 0.0f);
  } else if (kind == Kind::kRois) {
    draw_rois(layer.param(), first, numbers, random);
  } else if (kind == Kind::kImageSizes) {
    const auto stride = static_cast<float>(layer.param().proposal_param().feat_stride());
    const auto each = static_cast<std::size_t>(input.shape().count(1));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] =
          i % each < 2 ? static_cast<float>(first[static_cast<int>(2 + i % each)]) * stride : 1.0f;
  }
}

}  // namespace shoal
