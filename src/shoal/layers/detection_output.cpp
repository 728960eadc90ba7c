// DetectionOutput layer: the boxes that a net found, of overlapping ones the best.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/layers/box_codes.h"
#include "shoal/layers/detections_file.h"
#include "shoal/layers/layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

constexpr std::int64_t kDetectionNumbers = 7;

// Decodes a box beside each prior and keeps, of the boxes of a class that overlap, the one with the
// best score.
//   bottom[0] codes (N, 4 P L): L is 1 if the classes share them, else num_classes
//   bottom[1] scores (N, P num_classes)   bottom[2] priors (1, 2, 4 P)   bottom[3] is not looked at
//   top[0] (1, 1, K, 7): image in the batch, label, score, xmin, ymin, xmax, ymax; by image, label
//   and falling score. If nothing was found: a row for each image, its number and six times -1.
// Takes the boxes of each class but the background that score above confidence_threshold, leaves
// the best top_k, and of these the ones that nms_param does not suppress. The best keep_top_k of
// all classes of an image are the result. If scores are equal, the box of the lower class, then of
// the lower prior, is better. The host finds the boxes of a pass, and so K; before the first pass K
// is the most that it can be. Throws ConfigError for bottoms that do not fit. Source: SSD's
// DetectionOutputLayer, whose order of equal scores is not defined.
class DetectionOutput final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 3, .max_bottoms = 4}; }
  Propagates propagates(int) const override { return Propagates::kRefuses; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false, .backward = false}; }
  bool sizes_tops() const override { return true; }

  void setup(Context&, Bottoms, Tops) override {
    if (output().num_classes() < 1)
      throw config_error(param(), "detection_output_param has no num_classes; give the number of ",
                         "classes, the background's included");
    const NonMaximumSuppressionParameter& nms = output().nms_param();
    if (!(nms.nms_threshold() >= 0))
      throw config_error(param(), "nms_threshold is ", nms.nms_threshold(),
                         "; it is an overlap, 0 or above");
    if (!(nms.eta() > 0 && nms.eta() <= 1))
      throw config_error(param(), "eta of nms_param is ", nms.eta(),
                         "; it must be above 0 and at most 1");
    if (output().visualize())
      LOG(INFO) << layer_place(param()) << ": visualize is passed over: nothing is drawn";
    const SaveOutputParameter& save = output().save_output_param();
    if (save.output_directory().empty()) return;
    if (save.label_map_file().empty() || save.name_size_file().empty())
      LOG(WARNING) << layer_place(param()) << ": detections are not saved in "
                   << save.output_directory()
                   << ", since that takes a label_map_file and a name_size_file";
    else
      file_ = std::make_unique<DetectionsFile>(param(), save, output().background_label_id());
  }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    const Shape& prior = bottom[2]->shape();
    if (prior.axes() != 3 || prior[0] != 1 || prior[1] != 2 || prior[2] % 4 != 0)
      throw config_error(param(), "bottom '", bottom[2]->name, "' has shape ", prior.str(),
                         "; priors are (1, 2, 4 P), as PriorBox makes them");
    priors_ = prior[2] / 4;
    images_ = bottom[0]->shape().axes() > 0 ? bottom[0]->shape()[0] : 0;
    expect(*bottom[0], 4 * priors_ * locations(), "numbers of boxes");
    expect(*bottom[1], priors_ * classes(), "scores");
    top[0]->reshape(Shape{1, 1, most_rows(), kDetectionNumbers});
  }

  void size_tops(Context&, Bottoms bottom, Tops top) override {
    const Priors priors = read_priors(bottom[2]->data.host());
    found_.clear();
    for (std::int64_t image = 0; image < images_; ++image) find(bottom, priors, image);
    const auto rows = static_cast<std::int64_t>(found_.size());
    top[0]->reshape(Shape{1, 1, rows > 0 ? rows : images_, kDetectionNumbers});
  }

  void forward(Context& ctx, Bottoms, Tops top) override {
    const std::span<float> out = top[0]->data.host_out();
    std::ranges::fill(out, -1.0f);
    for (std::int64_t i = 0; found_.empty() && i < images_; ++i)
      out[static_cast<std::size_t>(i * kDetectionNumbers)] = static_cast<float>(i);
    std::size_t at = 0;
    for (const Detection& one : found_) {
      const Box& box = one.box;
      for (const float x : {static_cast<float>(one.image), static_cast<float>(one.label), one.score,
                            box.xmin, box.ymin, box.xmax, box.ymax})
        out[at++] = x;
    }
    if (!file_) return;
    const Status saved = file_->add(found_, images_);
    if (!saved.ok()) ctx.fail(saved.error());
  }

  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

 private:
  const DetectionOutputParameter& output() const { return param().detection_output_param(); }
  std::int64_t classes() const { return output().num_classes(); }
  std::int64_t locations() const { return output().share_location() ? 1 : classes(); }

  void expect(const Blob& blob, std::int64_t numbers, const char* what) const {
    const Shape& shape = blob.shape();
    if (shape.axes() == 0 || shape[0] != images_ || shape.count(1) != numbers)
      throw config_error(param(), "bottom '", blob.name, "' has shape ", shape.str(), "; ", priors_,
                         " priors and ", classes(), " classes take ", numbers, " ", what,
                         " for each of ", images_, " images");
  }

  std::int64_t top_k() const {
    const NonMaximumSuppressionParameter& nms = output().nms_param();
    return nms.has_top_k() && nms.top_k() >= 0 ? nms.top_k() : -1;
  }

  std::int64_t most_rows() const {
    const std::int64_t of_class = top_k() < 0 ? priors_ : std::min(priors_, top_k());
    const std::int64_t of_image =
        output().keep_top_k() < 0 ? of_class * classes() : std::int64_t{output().keep_top_k()};
    return images_ * std::max<std::int64_t>(of_image, 1);
  }

  // Adds what is in one image, as the top has it.
  void find(Bottoms bottom, const Priors& priors, std::int64_t image) {
    const auto slice = [image](const Blob& blob) {
      const auto each = static_cast<std::size_t>(blob.shape().count(1));
      return blob.data.host().subspan(static_cast<std::size_t>(image) * each, each);
    };
    std::vector<Detection> all;
    std::vector<Box> boxes;
    for (std::int64_t c = 0; c < classes(); ++c) {
      if (c == output().background_label_id()) continue;
      if (boxes.empty() || !output().share_location())
        boxes = decoded(slice(*bottom[0]), priors, c);
      add_class(slice(*bottom[1]), boxes, {image, static_cast<int>(c), 0, {}}, all);
    }
    keep_best(all);
    found_.insert(found_.end(), all.begin(), all.end());
  }

  // Decodes the boxes of a class.
  std::vector<Box> decoded(std::span<const float> codes, const Priors& priors,
                           std::int64_t label) const {
    const BoxCode code = box_code(output().code_type(), output().variance_encoded_in_target());
    const auto step = static_cast<std::size_t>(locations());
    std::size_t at = output().share_location() ? 0 : static_cast<std::size_t>(label);
    std::vector<Box> boxes;
    for (std::size_t i = 0; i < priors.boxes.size(); ++i, at += step)
      boxes.push_back(
          decode(priors.boxes[i], priors.variances[i], code, codes.subspan(4 * at).first<4>()));
    return boxes;
  }

  // Adds the boxes of a class that are good enough and overlap no better one.
  void add_class(std::span<const float> scores, const std::vector<Box>& boxes, Detection what,
                 std::vector<Detection>& all) const {
    const float least =
        output().has_confidence_threshold() ? output().confidence_threshold() : -FLT_MAX;
    std::vector<Box> candidates;
    std::vector<float> their_scores;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      const float score = scores[i * output().num_classes() + static_cast<std::size_t>(what.label)];
      if (!(score > least)) continue;
      candidates.push_back(boxes[i]);
      their_scores.push_back(score);
    }
    const NonMaximumSuppressionParameter& nms = output().nms_param();
    for (const std::int64_t i :
         suppress(candidates, their_scores,
                  {.threshold = nms.nms_threshold(), .top_k = top_k(), .eta = nms.eta()})) {
      what.score = their_scores[static_cast<std::size_t>(i)];
      what.box = candidates[static_cast<std::size_t>(i)];
      all.push_back(what);
    }
  }

  void keep_best(std::vector<Detection>& all) const {
    if (output().keep_top_k() < 0 || std::ssize(all) <= output().keep_top_k()) return;
    std::ranges::stable_sort(all, std::greater{}, &Detection::score);
    all.resize(static_cast<std::size_t>(output().keep_top_k()));
    std::ranges::stable_sort(all, std::less{}, &Detection::label);
  }

  std::int64_t priors_ = 0, images_ = 0;
  std::vector<Detection> found_;  // in this pass
  std::unique_ptr<DetectionsFile> file_;
};

}  // namespace

std::unique_ptr<Layer> make_DetectionOutput(const LayerParameter& param) {
  return std::make_unique<DetectionOutput>(param);
}

}  // namespace shoal
