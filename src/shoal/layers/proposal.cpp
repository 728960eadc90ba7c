// Proposal layer: boxes that may hold objects, from the scores of a region proposal network.
#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/layers/anchors.h"
#include "shoal/layers/boxes.h"
#include "shoal/layers/layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

std::vector<Box> anchors_of(const ProposalParameter& param) {
  std::vector<float> ratios(param.ratio().begin(), param.ratio().end()),
      scales(param.scale().begin(), param.scale().end());
  if (ratios.empty()) ratios = {0.5f, 1, 2};
  if (scales.empty()) scales = {8, 16, 32};
  const float side = static_cast<float>(param.base_size()), middle = 0.5f * (side - 1);
  std::vector<Box> anchors;
  for (const float ratio : ratios) {
    const float width = std::floor(std::sqrt(side * side / ratio) + 0.5f),
                height = std::floor(width * ratio + 0.5f);
    for (const float scale : scales) {
      const float right = 0.5f * (width * scale - 1), down = 0.5f * (height * scale - 1);
      anchors.push_back({middle - right, middle - down, middle + right, middle + down});
    }
  }
  return anchors;
}

namespace {

// The size of an image, and the scales at which min_size counts.
struct ImageInfo {
  float height, width, scale_h, scale_w;
};

// Returns the anchor moved by (dx, dy) of its size, with exp(dw), exp(dh) times the size, cut at
// the borders of the image.
Box moved(const Box& anchor, float dx, float dy, float dw, float dh, const ImageInfo& image) {
  const float width = anchor.xmax - anchor.xmin + 1, height = anchor.ymax - anchor.ymin + 1,
              x = dx * width + anchor.xmin + 0.5f * width,
              y = dy * height + anchor.ymin + 0.5f * height, half_w = 0.5f * std::exp(dw) * width,
              half_h = 0.5f * std::exp(dh) * height;
  const auto within = [](float at, float size) { return std::max(0.0f, std::min(at, size - 1)); };
  return {within(x - half_w, image.width), within(y - half_h, image.height),
          within(x + half_w, image.width), within(y + half_h, image.height)};
}

// The best boxes of each image.
//   bottom[0] scores (N, 2A, H, W), the last A those of objects
//   bottom[1] (N, 4A, H, W): dx, dy, dw, dh of each anchor
//   bottom[2] (1 or N, 3): height, width and scale of the image; with 4 numbers a scale a side
//   top[0] (R, 5): image, xmin, ymin, xmax, ymax, the best first   top[1], if asked for: (R),
//   scores
// Anchors stand at each place, feat_stride apart, in the order (h, w, a). Boxes with a side below
// min_size * scale, or with a number that is NaN, are left out; of the pre_nms_topn best, those
// that overlap a better one by more than nms_thresh go; post_nms_topn stay. Of equal scores the
// first in order is better. No bottom has a gradient. R follows the numbers; the host decides, on a
// GPU too. Throws ConfigError if the shapes do not fit. Source: Ren et al., "Faster R-CNN", 2015,
// as PVANet's fork has it, which gives small boxes the score 0 instead of leaving them out.
class Proposal final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 3, .max_bottoms = 3, .max_tops = 2}; }
  Propagates propagates(int) const override { return Propagates::kNothing; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false}; }
  bool sizes_tops() const override { return true; }

  void setup(Context&, Bottoms, Tops) override {
    const ProposalParameter& proposal = param().proposal_param();
    if (proposal.base_size() < 1 || proposal.feat_stride() < 1 || proposal.pre_nms_topn() < 1 ||
        proposal.post_nms_topn() < 1)
      throw config_error(param(),
                         "base_size, feat_stride, pre_nms_topn and post_nms_topn must be "
                         "1 or more; proposal_param gives ",
                         proposal.base_size(), ", ", proposal.feat_stride(), ", ",
                         proposal.pre_nms_topn(), " and ", proposal.post_nms_topn());
    for (const auto& list : {proposal.ratio(), proposal.scale()})
      for (const float each : list)
        if (!(each > 0))
          throw config_error(param(), "a ratio or scale is ", each, "; it must be above 0");
    anchors_ = anchors_of(proposal);
  }
  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape &scores = bottom[0]->shape(), &deltas = bottom[1]->shape(),
                &info = bottom[2]->shape();
    const std::int64_t anchors = static_cast<std::int64_t>(anchors_.size());
    const bool fits = scores.axes() == 4 && deltas.axes() == 4 && scores[0] == deltas[0] &&
                      scores[1] == 2 * anchors && deltas[1] == 4 * anchors &&
                      scores.count(2) == deltas.count(2) && scores[2] == deltas[2];
    if (!fits)
      throw config_error(param(), "scores '", bottom[0]->name, "' of shape ", scores.str(),
                         " and deltas '", bottom[1]->name, "' of shape ", deltas.str(),
                         " do not fit ", anchors, " anchors (ratios times scales): they need (N, ",
                         2 * anchors, ", H, W) and (N, ", 4 * anchors, ", H, W)");
    const std::int64_t rows = info.axes() > 0 ? info[0] : 0;
    if ((rows != 1 && rows != scores[0]) || info.axes() == 0 || info.count(1) < 3)
      throw config_error(param(), "bottom '", bottom[2]->name, "', the sizes of the images, has ",
                         "shape ", info.str(), "; it must be (1, 3): height, width, scale");
    const std::int64_t most =
        scores[0] * std::min({std::int64_t{param().proposal_param().post_nms_topn()},
                              std::int64_t{param().proposal_param().pre_nms_topn()},
                              anchors * scores.count(2)});
    give(top, most);
  }
  void size_tops(Context&, Bottoms bottom, Tops top) override {
    rois_.clear();
    scores_.clear();
    for (std::int64_t image = 0; image < bottom[0]->shape()[0]; ++image) propose(bottom, image);
    give(top, static_cast<std::int64_t>(scores_.size()));
  }
  void forward(Context&, Bottoms, Tops top) override {
    std::ranges::copy(rois_, top[0]->data.host_out().begin());
    if (top.size() > 1) std::ranges::copy(scores_, top[1]->data.host_out().begin());
  }
  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

 private:
  static void give(Tops top, std::int64_t rois) {
    top[0]->reshape(Shape{rois, 5});
    if (top.size() > 1) top[1]->reshape(Shape{rois});
  }
  static ImageInfo info_of(const Blob& info, std::int64_t image) {
    const std::size_t each = static_cast<std::size_t>(info.shape().count(1)),
                      at = info.shape()[0] > 1 ? static_cast<std::size_t>(image) * each : 0;
    const std::span<const float> numbers = info.data.host();
    return {numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + (each > 3 ? 3 : 2)]};
  }
  // Adds the boxes of one image.
  void propose(Bottoms bottom, std::int64_t image) {
    const ProposalParameter& proposal = param().proposal_param();
    const ImageInfo info = info_of(*bottom[2], image);
    const Shape& shape = bottom[0]->shape();
    const std::size_t anchors = anchors_.size(), width = static_cast<std::size_t>(shape[3]),
                      plane = static_cast<std::size_t>(shape.count(2)),
                      item = static_cast<std::size_t>(image);
    const std::span<const float> all_scores = bottom[0]->data.host(),
                                 all_deltas = bottom[1]->data.host();
    const float *const scores = all_scores.data() + (2 * item + 1) * anchors * plane,
                       *const deltas = all_deltas.data() + 4 * item * anchors * plane;
    const auto stride = static_cast<float>(proposal.feat_stride()),
               least = static_cast<float>(proposal.min_size());
    std::vector<Box> boxes;
    std::vector<float> of_boxes;
    for (std::size_t i = 0; i < plane * anchors; ++i) {
      const std::size_t place = i / anchors, a = i % anchors;
      const float x = static_cast<float>(place % width) * stride,
                  y = static_cast<float>(place / width) * stride;
      const Box& at = anchors_[a];
      const float* const d = deltas + 4 * a * plane + place;
      const Box box = moved({at.xmin + x, at.ymin + y, at.xmax + x, at.ymax + y}, d[0], d[plane],
                            d[2 * plane], d[3 * plane], info);
      const float score = scores[a * plane + place];
      if (std::isnan(score) || !(box.xmax - box.xmin + 1 >= least * info.scale_w) ||
          !(box.ymax - box.ymin + 1 >= least * info.scale_h))
        continue;
      boxes.push_back(box);
      of_boxes.push_back(score);
    }
    const Suppression suppression{.threshold = proposal.nms_thresh(),
                                  .top_k = proposal.pre_nms_topn(),
                                  .most = proposal.post_nms_topn(),
                                  .extent = Extent::kPixels};
    for (const std::int64_t best : suppress(boxes, of_boxes, suppression)) {
      const Box& box = boxes[static_cast<std::size_t>(best)];
      const float roi[] = {static_cast<float>(image), box.xmin, box.ymin, box.xmax, box.ymax};
      rois_.insert(rois_.end(), std::begin(roi), std::end(roi));
      scores_.push_back(of_boxes[static_cast<std::size_t>(best)]);
    }
  }

  std::vector<Box> anchors_;
  std::vector<float> rois_, scores_;  // of this pass
};

}  // namespace

std::unique_ptr<Layer> make_Proposal(const LayerParameter& param) {
  return std::make_unique<Proposal>(param);
}

}  // namespace shoal
