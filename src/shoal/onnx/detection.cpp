// Converts DetectionOutput: boxes that a net of SSD's kind found.
#include <algorithm>
#include <cfloat>

#include "shoal/onnx/box_values.h"
#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// Letters of the shapes: N images, P priors, C classes without the background, K candidates of a
// class.
class DetectionExport {
 public:
  explicit DetectionExport(LayerExport& x)
      : x_(x),
        output_(x.param().detection_output_param()),
        n_(x.bottom_dims(0)[0]),
        priors_(x.bottom(2)[2] / 4),
        locations_(output_.share_location() ? 1 : output_.num_classes()) {
    for (std::int64_t c = 0; c < output_.num_classes(); ++c)
      if (c != output_.background_label_id()) classes_.push_back(c);
    const auto& nms = output_.nms_param();
    candidates_ = nms.has_top_k() && nms.top_k() >= 0 ? std::min<std::int64_t>(priors_, nms.top_k())
                                                      : priors_;
  }

  void convert() {
    if (classes_.empty() || candidates_ == 0)
      x_.refuse("it can find nothing: there is no class but the background, or top_k is 0");
    choose_candidates();
    const std::string best =
        suppressed(x_, x_.reshaped(boxes_, {by(n_, classes()), {candidates_}, {4}}),
                   x_.reshaped(scores_, {by(n_, classes()), {1}, {candidates_}}),
                   {output_.nms_param().nms_threshold(), least(), candidates_});
    give(best);
  }

 private:
  std::int64_t classes() const { return std::ssize(classes_); }
  float least() const {
    return output_.has_confidence_threshold() ? output_.confidence_threshold() : -FLT_MAX;
  }
  static Dim by(Dim dim, std::int64_t factor) { return {dim.size * factor, dim.kind}; }

  // Numbers `of` [begin, end) of the priors: 0 of the boxes, 1 of the variances; (1, P, 1, ...).
  std::string prior(std::int64_t of, std::int64_t begin, std::int64_t end) {
    const std::string all = x_.reshaped(x_.in(2), fixed({2, priors_, 1, 4}));
    const std::string part =
        x_.add("Gather", {all, x_.integers({of})}, {{"axis", std::int64_t{0}}});
    return cut(x_, part, 4, begin, end);
  }
  std::string product(const std::string& a, const std::string& b) { return x_.add("Mul", {a, b}); }

  // The boxes of all codes: (N, P, locations, 4).
  std::string decoded() {
    std::string codes = x_.reshaped(x_.in(0), {n_, {priors_}, {locations_}, {4}});
    if (!output_.variance_encoded_in_target()) codes = product(codes, prior(1, 0, 4));
    const std::string low = prior(0, 0, 2), high = prior(0, 2, 4);
    const std::string size = x_.add("Sub", {high, low});
    const std::string a = cut(x_, codes, 4, 0, 2), b = cut(x_, codes, 4, 2, 4);
    if (output_.code_type() == PriorBoxParameter::CENTER_SIZE) {
      const std::string half = x_.number(0.5f), middle = product(x_.add("Add", {low, high}), half),
                        centre = x_.add("Add", {product(a, size), middle}),
                        reach = product(product(x_.add("Exp", {b}), size), half);
      return joined(x_, {x_.add("Sub", {centre, reach}), x_.add("Add", {centre, reach})});
    }
    const bool by_size = output_.code_type() == PriorBoxParameter::CORNER_SIZE;
    return joined(x_, {x_.add("Add", {low, by_size ? product(a, size) : a}),
                       x_.add("Add", {high, by_size ? product(b, size) : b})});
  }

  // Sets scores_ (N, C, K), the best first, and boxes_ (N, C K, 4).
  void choose_candidates() {
    std::string boxes = decoded();
    const Dims all{n_, {priors_}, {std::int64_t{output_.num_classes()}}};
    const std::string by_prior = x_.reshaped(x_.in(1), all);
    const std::string scores =
        x_.add("Gather",
               {x_.add("Transpose", {by_prior}, {{"perm", Sizes{0, 2, 1}}}), x_.integers(classes_)},
               {{"axis", std::int64_t{1}}});
    const Names best =
        x_.add_many("TopK", {scores, x_.integers({candidates_})}, 2, {{"axis", std::int64_t{2}}});
    std::string place = best[1];
    if (!output_.share_location()) {
      boxes = x_.add("Transpose", {boxes}, {{"perm", Sizes{0, 2, 1, 3}}});
      Sizes first;  // of each class
      for (const std::int64_t c : classes_) first.push_back(c * priors_);
      place = x_.add("Add", {place, x_.add("Unsqueeze", {x_.integers(first), x_.integers({1})})});
    }
    scores_ = best[0];
    const std::string rows = x_.reshaped(place, {n_, {classes() * candidates_}, {1}});
    boxes_ = x_.add("GatherND", {x_.reshaped(boxes, {n_, {priors_ * locations_}, {4}}), rows},
                    {{"batch_dims", std::int64_t{1}}});
  }

  // `best` (M, 2) names item n C + c and candidate. The scores of what was suppressed become the
  // least, and the best keep_top_k of each image are put in order of class and score, which is that
  // of their places.
  void give(const std::string& best) {
    const std::int64_t all = classes() * candidates_,
                       keep = output_.keep_top_k() < 0
                                  ? all
                                  : std::min<std::int64_t>(all, output_.keep_top_k());
    if (keep == 0) x_.refuse("keep_top_k is 0: nothing is ever found");
    const std::string by_class = x_.reshaped(scores_, {by(n_, classes()), {candidates_}});
    const std::string chosen = x_.add("GatherND", {by_class, best});
    const std::string nothing =
        x_.add("Expand", {x_.number(-FLT_MAX), x_.add("Shape", {by_class})});
    const std::string scores =
        x_.reshaped(x_.add("ScatterND", {nothing, best, chosen}), {n_, {all}});
    const Names kept =
        x_.add_many("TopK", {scores, x_.integers({keep})}, 2, {{"axis", std::int64_t{1}}});
    const std::string there = x_.add("Greater", {kept[0], x_.number(-FLT_MAX)});
    const std::string place = x_.add("Where", {there, kept[1], x_.integer(all)});
    const Names order = x_.add_many("TopK", {place, x_.integers({keep})}, 2,
                                    {{"axis", std::int64_t{1}}, {"largest", std::int64_t{0}}});
    // (2, M): image, and place among its numbers.
    const std::string rows =
        x_.add("Transpose", {x_.add("NonZero", {x_.add("Less", {order[0], x_.integer(all)})})},
               {{"perm", Sizes{1, 0}}});
    const std::string image = x_.reshaped(cut(x_, rows, 2, 0, 1), {{0, Dim::Kind::kUnknown}});
    const std::string at = x_.add("GatherND", {order[0], rows});
    const std::string where = joined(x_, {with_axis(x_, image, 1), with_axis(x_, at, 1)});
    const std::string label =
        x_.add("Gather", {x_.integers(classes_), x_.add("Div", {at, x_.integer(candidates_)})});
    give_detections(x_,
                    {as_floats(x_, image), as_floats(x_, label),
                     x_.add("GatherND", {scores, where}), x_.add("GatherND", {boxes_, where})},
                    x_.in(0));
  }

  LayerExport& x_;
  const DetectionOutputParameter& output_;
  Dim n_;
  std::int64_t priors_, locations_, candidates_ = 0;
  Sizes classes_;
  std::string scores_, boxes_;
};

}  // namespace

void convert_detection_output(LayerExport& x) {
  if (x.param().detection_output_param().nms_param().eta() < 1)
    x.refuse("its threshold changes while boxes are suppressed (adaptive NMS, eta below 1)");
  DetectionExport(x).convert();
}

}  // namespace shoal::onnx
