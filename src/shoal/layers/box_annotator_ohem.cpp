// BoxAnnotatorOHEM layer: keeps the labels of the boxes that a net gets most wrong.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "shoal/layers/roi_layer.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// Keeps label and weights of the roi_per_img boxes of each image whose losses are largest; of equal
// losses that of the lower number is larger, and NaN is larger than any number. The others get
// ignore_label and weights of 0. The host decides, on a GPU too.
//   bottom[0] rois (R, 5, ...), the first number the image   bottom[1] losses (R, 1, ...)
//   bottom[2] labels, as many   bottom[3] weights of the box's numbers (R, C, ...)
//   top[0] labels (R, 1, H, W)   top[1] weights, as bottom[3]
// No bottom has a gradient. Throws ConfigError, which names the shapes, if they do not fit. Source:
// Shrivastava et al., "Training region-based object detectors with online hard example mining",
// 2016, as R-FCN's fork has it.
class BoxAnnotatorOhem final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override {
    return {.min_bottoms = 4, .max_bottoms = 4, .min_tops = 2, .max_tops = 2};
  }
  Propagates propagates(int) const override { return Propagates::kNothing; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false}; }

  void setup(Context&, Bottoms, Tops) override {
    if (param().box_annotator_ohem_param().roi_per_img() < 1)
      throw config_error(param(),
                         "roi_per_img is not given or 0; it says how many boxes of an "
                         "image are kept, as 128");
  }
  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape &rois = bottom[0]->shape(), &weights = bottom[3]->shape();
    if (rois.axes() < 2 || rois[1] != 5)
      throw config_error(param(), "bottom '", bottom[0]->name,
                         "', the rois, must have shape (R, 5, ...), not ", rois.str());
    places_ = rois.count(2);
    const bool fits = bottom[1]->shape().count() == rois[0] * places_ &&
                      bottom[2]->shape().count() == rois[0] * places_ && weights.axes() >= 2 &&
                      weights[0] == rois[0] && weights.count(2) == places_;
    if (!fits)
      throw config_error(param(), "rois '", bottom[0]->name, "' of shape ", rois.str(),
                         ", losses '", bottom[1]->name, "' of ", bottom[1]->shape().str(),
                         ", labels '", bottom[2]->name, "' of ", bottom[2]->shape().str(),
                         " and weights '", bottom[3]->name, "' of ", weights.str(),
                         " do not fit: each roi has one loss, one label and a row of weights");
    top[0]->reshape(rois.axes() == 4 ? Shape{rois[0], 1, rois[2], rois[3]}
                                     : Shape{rois[0], 1, places_, 1});
    top[1]->reshape(weights);
  }

  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    const std::span<const float> rois = bottom[0]->data.host(), labels = bottom[2]->data.host(),
                                 weights = bottom[3]->data.host();
    const std::span<float> kept_labels = top[0]->data.host_out(),
                           kept_weights = top[1]->data.host_out();
    std::ranges::fill(kept_labels,
                      static_cast<float>(param().box_annotator_ohem_param().ignore_label()));
    std::ranges::fill(kept_weights, 0.0f);
    const std::size_t places = static_cast<std::size_t>(places_),
                      channels = static_cast<std::size_t>(bottom[3]->shape()[1]);
    std::map<std::int64_t, std::uint32_t> taken;  // by image
    for (const std::size_t i : hardest_first(bottom[1]->data.host())) {
      const std::size_t roi = i / places, place = i % places;
      const float image = rois[roi * 5 * places + place];
      if (!(image >= 0 && image < 1e9f)) {
        ctx.fail({Code::kData, str("roi ", roi, " of '", bottom[0]->name, "' is of image ", image,
                                   "; images count from 0")});
        return;
      }
      if (taken[static_cast<std::int64_t>(image)]++ >=
          param().box_annotator_ohem_param().roi_per_img())
        continue;
      kept_labels[i] = labels[i];
      for (std::size_t c = 0; c < channels; ++c) {
        const std::size_t at = (roi * channels + c) * places + place;
        kept_weights[at] = weights[at];
      }
    }
  }
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

 private:
  static std::vector<std::size_t> hardest_first(std::span<const float> losses) {
    const auto hardness = [losses](std::size_t i) {
      return std::isnan(losses[i]) ? std::numeric_limits<float>::infinity() : losses[i];
    };
    std::vector<std::size_t> order(losses.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(
        order, [&](std::size_t a, std::size_t b) { return hardness(a) > hardness(b); });
    return order;
  }
  std::int64_t places_ = 1;
};

}  // namespace

std::unique_ptr<Layer> make_BoxAnnotatorOHEM(const LayerParameter& param) {
  return std::make_unique<BoxAnnotatorOhem>(param);
}

}  // namespace shoal
