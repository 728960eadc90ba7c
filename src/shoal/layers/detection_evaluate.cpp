// DetectionEvaluate layer: says which detections are right.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "shoal/layers/box_pixels.h"
#include "shoal/layers/layer.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

constexpr std::size_t kFoundNumbers = 7, kTrueNumbers = 8, kVerdictNumbers = 5;

// Compares detections with the true boxes, from which a solver with eval_type "detection" makes a
// mean average precision.
//   bottom[0] detections (1, 1, K, 7), as DetectionOutput makes them; rows of label -1 are none
//   bottom[1] true boxes (1, 1, G, 8), as AnnotatedData makes them; a row of image -1 ends them
//   top[0] (1, 1, C + D, 5): for each of the C classes but the background (-1, label, its true
//   boxes, -1, -1); then for each of the D detections (image, label, score, right, wrong), by
//   image, label and falling score, equal ones in their order
// A detection is right if the true box of its class that it overlaps most, by overlap_threshold or
// more, is not another's yet. With evaluate_difficult_gt: false difficult boxes do not count, and
// their detections are neither right nor wrong. With a name_size_file overlaps are measured in
// pixels of the pictures, whole ones as VOC does; without, in parts of the input. Images are
// counted by their numbers in both bottoms. All is done on the host. Throws ConfigError for bottoms
// of another shape. Source: SSD's DetectionEvaluateLayer.
class DetectionEvaluate final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {.min_bottoms = 2, .max_bottoms = 2}; }
  Propagates propagates(int) const override { return Propagates::kRefuses; }
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false, .backward = false}; }
  bool sizes_tops() const override { return true; }

  void setup(Context&, Bottoms, Tops) override {
    if (evaluate().num_classes() < 1)
      throw config_error(param(), "detection_evaluate_param has no num_classes; give the number ",
                         "of classes, the background's included");
    if (!(evaluate().overlap_threshold() > 0))
      throw config_error(param(), "overlap_threshold is ", evaluate().overlap_threshold(),
                         "; it must be above 0");
    if (evaluate().has_name_size_file())
      sizes_ = read_name_sizes(param(), evaluate().name_size_file());
  }

  void reshape(Context&, Bottoms bottom, Tops top) override {
    expect(*bottom[0], kFoundNumbers, "detections");
    expect(*bottom[1], kTrueNumbers, "true boxes");
    top[0]->reshape(shape_of(bottom[0]->data.count() / static_cast<std::int64_t>(kFoundNumbers)));
  }

  void size_tops(Context& ctx, Bottoms bottom, Tops top) override {
    read_found(ctx, bottom[0]->data.host());
    std::int64_t count = 0;
    for (const auto& [image, classes] : found_)
      for (const auto& [label, boxes] : classes) count += std::ssize(boxes);
    top[0]->reshape(shape_of(count));
  }

  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    read_true(ctx, bottom[1]->data.host());
    const std::span<float> out = top[0]->data.host_out();
    std::ranges::fill(out, 0.0f);
    std::size_t row = 0;
    const auto put = [&](const std::array<float, kVerdictNumbers>& numbers) {
      std::ranges::copy(numbers, out.begin() + static_cast<std::ptrdiff_t>(row));
      row += kVerdictNumbers;
    };
    for (int c = 0; c < static_cast<int>(evaluate().num_classes()); ++c)
      if (c != background()) put({-1, static_cast<float>(c), count_true(c), -1, -1});
    for (auto& [image, classes] : found_) {
      for (auto& [label, boxes] : classes)
        for (const Verdict& verdict : judge(image, label, boxes))
          put({static_cast<float>(image), static_cast<float>(label), verdict.score,
               static_cast<float>(verdict.right), static_cast<float>(verdict.wrong)});
    }
    first_ += images_;
  }

  void backward(Context&, Tops, const std::vector<bool>&, Bottoms) override {}

 private:
  struct FoundBox {
    Box box;
    float score = 0;
  };
  struct TrueBox {
    Box box;
    bool difficult = false, taken = false;
  };
  struct Verdict {
    float score = 0;
    bool right = false, wrong = false;
  };
  template <class T>
  using ByImageAndLabel = std::map<int, std::map<int, std::vector<T>>>;

  const DetectionEvaluateParameter& evaluate() const { return param().detection_evaluate_param(); }
  int background() const { return static_cast<int>(evaluate().background_label_id()); }

  void expect(const Blob& blob, std::size_t numbers, const char* what) const {
    const Shape& shape = blob.shape();
    if (shape.axes() != 4 || shape[1] != 1 || shape[3] != static_cast<std::int64_t>(numbers))
      throw config_error(param(), "bottom '", blob.name, "' has shape ", shape.str(), "; ", what,
                         " are (1, 1, any number, ", numbers, ")");
  }

  Shape shape_of(std::int64_t detections) const {
    const auto classes = static_cast<int>(evaluate().num_classes());
    const bool has_background = background() >= 0 && background() < classes;
    return Shape{1, 1, classes - has_background + detections, kVerdictNumbers};
  }

  // Ends the pass if a box is the background's.
  bool may_be(Context& ctx, int label, const char* whose) const {
    if (label != background()) return true;
    ctx.fail({Code::kData, str(layer_place(param()), ": ", whose, " have label ", label,
                               ", which is background_label_id; classes of objects are other "
                               "numbers")});
    return false;
  }

  void read_found(Context& ctx, std::span<const float> rows) {
    found_.clear();
    images_ = 0;
    for (; rows.size() >= kFoundNumbers; rows = rows.subspan(kFoundNumbers)) {
      const int image = static_cast<int>(rows[0]), label = static_cast<int>(rows[1]);
      images_ = std::max(images_, image + 1);
      if (image == -1 || label == -1) continue;
      if (!may_be(ctx, label, "detections")) return;
      found_[image][label].push_back({{rows[3], rows[4], rows[5], rows[6]}, rows[2]});
    }
  }

  void read_true(Context& ctx, std::span<const float> rows) {
    true_.clear();
    for (; rows.size() >= kTrueNumbers && rows[0] != -1; rows = rows.subspan(kTrueNumbers)) {
      const int image = static_cast<int>(rows[0]), label = static_cast<int>(rows[1]);
      images_ = std::max(images_, image + 1);
      if (!may_be(ctx, label, "true boxes")) return;
      true_[image][label].push_back({{rows[3], rows[4], rows[5], rows[6]}, rows[7] != 0});
    }
  }

  float count_true(int label) const {
    std::int64_t count = 0;
    for (const auto& [image, classes] : true_) {
      const auto boxes = classes.find(label);
      if (boxes == classes.end()) continue;
      count += std::ranges::count_if(boxes->second, [&](const TrueBox& box) {
        return evaluate().evaluate_difficult_gt() || !box.difficult;
      });
    }
    return static_cast<float>(count);
  }

  Box measured(int image, const Box& box) const {
    if (sizes_.empty()) return box;
    return to_pixels(box, sizes_[static_cast<std::size_t>(first_ + image) % sizes_.size()],
                     evaluate().has_resize_param() ? &evaluate().resize_param() : nullptr);
  }

  std::vector<Verdict> judge(int image, int label, std::vector<FoundBox>& boxes) {
    std::vector<TrueBox>& truth = true_[image][label];
    const Extent extent = sizes_.empty() ? Extent::kCorners : Extent::kPixels;
    if (!truth.empty()) std::ranges::stable_sort(boxes, std::greater{}, &FoundBox::score);
    std::vector<Verdict> verdicts;
    for (const FoundBox& found : boxes) {
      TrueBox* best = nullptr;
      float most = -1;
      for (TrueBox& box : truth) {
        const float common = overlap(measured(image, found.box), measured(image, box.box), extent);
        if (!(common > most)) continue;
        most = common;
        best = &box;
      }
      verdicts.push_back({.score = found.score});
      Verdict& verdict = verdicts.back();
      const bool hit = best && most >= evaluate().overlap_threshold();
      if (hit && best->difficult && !evaluate().evaluate_difficult_gt()) continue;
      verdict.right = hit && !best->taken;
      verdict.wrong = !verdict.right;
      if (hit) best->taken = true;
    }
    return verdicts;
  }

  std::vector<NamedSize> sizes_;  // of the pictures; none: boxes are parts of the input
  std::int64_t first_ = 0;        // images of the passes before
  int images_ = 0;                // in this pass, as far as the bottoms tell
  ByImageAndLabel<FoundBox> found_;
  ByImageAndLabel<TrueBox> true_;
};

}  // namespace

std::unique_ptr<Layer> make_DetectionEvaluate(const LayerParameter& param) {
  return std::make_unique<DetectionEvaluate>(param);
}

}  // namespace shoal
