// MultiBoxLoss layer: the loss of the boxes that a net finds, and of their classes.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <map>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/layers/box_codes.h"
#include "shoal/layers/box_matching.h"
#include "shoal/layers/loss.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

constexpr std::size_t kTrueBoxNumbers = 8;

// Returns the logarithm of the sum of exp(score), computed from the largest.
double log_sum(std::span<const float> scores) {
  const float most = *std::ranges::max_element(scores);
  double sum = 0;
  for (const float score : scores) sum += std::exp(score - most);
  return most + std::log(sum);
}

// The loss of SSD: a net's boxes are matched with the true ones, those that match learn the box and
// the class, and the worst of the others (mining) learn the background.
//   bottom[0] codes of boxes (N, 4 P L): L is 1 if the classes share them, else num_classes
//   bottom[1] scores (N, P num_classes)   bottom[2] priors (1, 2, 4 P): no gradient flows there
//   bottom[3] true boxes (1, 1, G, 8), as AnnotatedData makes them; rows of image -1 are none
//   top[0] (loc_weight sum of SMOOTH_L1 or L2 of code - true code, over the matches, + sum of
//   SOFTMAX or LOGISTIC losses of matches and mined, or of all with mining NONE) / normalizer
// The normalizer is loss_param's, the number of matches (VALID) if it says nothing, at least 1. A
// bottom with propagate_down: false has no part in the loss. LOGISTIC wants 1 of a box's class, or
// of the background for a mined one, and 0 of the others; without mining 0 of all for a box without
// a match. box_matching.h says which boxes match and are mined: a choice, whose gradient is nought.
// Matching and losses are computed on the host. backward overwrites bottom[0].grad and
// bottom[1].grad. Throws ConfigError for bottoms that do not fit; a label that is no class, or the
// background's, ends the pass. Source: SSD's MultiBoxLossLayer; its gradient of codes lacks a
// division by the variances with encode_variance_in_target.
class MultiBoxLoss final : public LossLayer {
 public:
  using LossLayer::LossLayer;
  Arity arity() const override { return {.min_bottoms = 4, .max_bottoms = 4}; }
  Propagates propagates(int bottom) const override {
    if (bottom == 2) return Propagates::kNothing;
    return bottom < 2 ? Propagates::kYes : Propagates::kRefuses;
  }
  // forward keeps what backward needs.
  Reads reads() const override { return {.bottom_data = false, .top_data = false}; }
  Replays replays() const override { return {.forward = false, .backward = false}; }

  void setup(Context&, Bottoms, Tops) override {
    boxes_ = param().multibox_loss_param();
    check_mining();
    check_classes();
    for (const auto& [name, value] : {std::pair{"neg_pos_ratio", boxes_.neg_pos_ratio()},
                                      std::pair{"loc_weight", boxes_.loc_weight()}})
      if (!(value >= 0))
        throw config_error(param(), name, " is ", value, "; it must not be below 0");
  }

  void reshape(Context& ctx, Bottoms bottom, Tops top) override {
    LossLayer::reshape(ctx, bottom, top);
    const Shape &prior = bottom[2]->shape(), &truth = bottom[3]->shape();
    if (prior.axes() != 3 || prior[0] != 1 || prior[1] != 2 || prior[2] % 4 != 0)
      throw config_error(param(), "bottom '", bottom[2]->name, "' has shape ", prior.str(),
                         "; priors are (1, 2, 4 P), as PriorBox makes them");
    if (truth.axes() != 4 || truth[1] != 1 || truth[3] != kTrueBoxNumbers)
      throw config_error(param(), "bottom '", bottom[3]->name, "' has shape ", truth.str(),
                         "; true boxes are (1, 1, any number, 8), as AnnotatedData makes them");
    priors_ = prior[2] / 4;
    images_ = bottom[0]->shape().axes() > 0 ? bottom[0]->shape()[0] : 0;
    expect(*bottom[0], 4 * priors_ * locations(), "numbers of boxes");
    expect(*bottom[1], priors_ * classes(), "scores");
  }

  void forward(Context& ctx, Bottoms bottom, Tops top) override {
    codes_.clear();
    rows_.clear();
    matched_ = 0;
    const Priors priors = read_priors(bottom[2]->data.host());
    std::map<std::int64_t, std::vector<LabelledBox>> truth;
    if (!read_truth(ctx, bottom[3]->data.host(), truth)) return;
    for (std::int64_t image = 0; image < images_; ++image)
      if (!learn(ctx, bottom, priors, image, truth[image])) return;
    const LossParameter& loss_param = param().loss_param();
    normalizer_ =
        loss_normalizer(loss_param, normalization_of(loss_param, LossParameter::VALID),
                        {.all = images_ * priors_, .counted = matched_, .batch = images_});
    double loss = 0;
    if (counts(0)) loss += boxes_.loc_weight() * code_loss();
    if (counts(1)) loss += class_loss(bottom[1]->data.host());
    top[0]->data.host_out()[0] = static_cast<float>(loss / normalizer_);
  }

  void backward(Context&, Tops top, const std::vector<bool>& propagate, Bottoms bottom) override {
    const double scale = upstream(top) / normalizer_;
    if (propagate[0]) {
      const std::span<float> out = bottom[0]->grad.host_out();
      std::ranges::fill(out, 0.0f);
      for (const CodeTarget& code : codes_)
        for (std::size_t k = 0; k < 4; ++k)
          out[code.at + k] =
              static_cast<float>(scale * boxes_.loc_weight() * slope(code.error[k]) * code.unit[k]);
    }
    if (!propagate[1]) return;
    const std::span<float> out = bottom[1]->grad.host_out();
    std::ranges::fill(out, 0.0f);
    for (std::size_t i = 0; i < rows_.size(); ++i)
      for (std::size_t c = 0; c < boxes_.num_classes(); ++c)
        out[rows_[i].at + c] =
            static_cast<float>(scale * class_slopes_[i * boxes_.num_classes() + c]);
  }

 private:
  // A box that is to learn a code: its own, less the true one, in units of the loss.
  struct CodeTarget {
    std::size_t at = 0;  // of the code's first number in bottom[0]
    FourNumbers error{}, unit{};
  };
  struct ClassTarget {
    std::size_t at = 0;  // of the first score in bottom[1]
    int label = 0;       // -1: none
  };

  std::int64_t classes() const { return boxes_.num_classes(); }
  std::int64_t locations() const { return boxes_.share_location() ? 1 : classes(); }
  int background() const { return static_cast<int>(boxes_.background_label_id()); }
  bool softmax() const { return boxes_.conf_loss_type() == MultiBoxLossParameter::SOFTMAX; }
  bool mines() const { return boxes_.mining_type() != MultiBoxLossParameter::NONE; }
  bool counts(int bottom) const {
    return param().propagate_down_size() <= bottom || param().propagate_down(bottom);
  }
  BoxCode code() const { return box_code(boxes_.code_type(), boxes_.encode_variance_in_target()); }

  void check_mining() {
    if (boxes_.has_do_neg_mining()) {
      if (boxes_.has_mining_type() && boxes_.do_neg_mining() != mines())
        throw config_error(param(), "do_neg_mining and mining_type say different things; leave ",
                           "do_neg_mining out, which is the old spelling");
      if (!boxes_.do_neg_mining()) boxes_.set_mining_type(MultiBoxLossParameter::NONE);
    }
    if (mines() && !boxes_.share_location())
      throw config_error(param(), "share_location: false goes with mining_type: NONE alone");
    if (boxes_.mining_type() == MultiBoxLossParameter::HARD_EXAMPLE && boxes_.sample_size() < 1)
      throw config_error(param(), "sample_size is ", boxes_.sample_size(),
                         "; HARD_EXAMPLE takes 1 or more boxes of an image");
  }

  void check_classes() const {
    if (boxes_.num_classes() < 1)
      throw config_error(param(), "multibox_loss_param has no num_classes; give the number of ",
                         "classes, the background's included");
    if (softmax() && !(background() >= 0 && background() < classes()))
      throw config_error(param(), "background_label_id is ", background(), " of ", classes(),
                         " classes; SOFTMAX has the background among them");
    const std::int64_t agnostic = background() >= 0 ? 2 : 1;
    if (boxes_.map_object_to_agnostic() && classes() != agnostic)
      throw config_error(param(), "num_classes is ", classes(), "; map_object_to_agnostic leaves ",
                         agnostic);
  }

  void expect(const Blob& blob, std::int64_t numbers, const char* what) const {
    const Shape& shape = blob.shape();
    if (shape.axes() == 0 || shape[0] != images_ || shape.count(1) != numbers)
      throw config_error(param(), "bottom '", blob.name, "' has shape ", shape.str(), "; ", priors_,
                         " priors and ", classes(), " classes take ", numbers, " ", what,
                         " for each of ", images_, " images");
  }

  bool read_truth(Context& ctx, std::span<const float> rows,
                  std::map<std::int64_t, std::vector<LabelledBox>>& truth) const {
    for (; rows.size() >= kTrueBoxNumbers; rows = rows.subspan(kTrueBoxNumbers)) {
      if (rows[0] == -1) continue;
      const auto image = static_cast<std::int64_t>(rows[0]);
      const int label = static_cast<int>(rows[1]);
      std::string wrong;
      if (image < 0 || image >= images_)
        wrong = str("a true box is of image ", image, " of a batch of ", images_);
      else if (label == background())
        wrong = str("a true box of image ", image, " has label ", label,
                    ", which is background_label_id; classes of objects are other numbers");
      else if (!boxes_.map_object_to_agnostic() && (label < 0 || label >= classes()))
        wrong = str("a true box of image ", image, " has label ", label, "; num_classes is ",
                    classes(), ", so labels end at ", classes() - 1);
      if (!wrong.empty()) {
        ctx.fail({Code::kData, str(layer_place(param()), ": ", wrong)}, image);
        return false;
      }
      const bool difficult = rows[7] != 0;
      if (difficult && !boxes_.use_difficult_gt()) continue;
      truth[image].push_back({{rows[3], rows[4], rows[5], rows[6]}, label});
    }
    return true;
  }

  std::vector<Box> decoded(std::span<const float> codes, const Priors& priors,
                           std::int64_t location) const {
    std::vector<Box> boxes;
    for (std::size_t i = 0; i < priors.boxes.size(); ++i) {
      const std::size_t at =
          i * static_cast<std::size_t>(locations()) + static_cast<std::size_t>(location);
      boxes.push_back(
          decode(priors.boxes[i], priors.variances[i], code(), codes.subspan(4 * at).first<4>()));
    }
    return boxes;
  }

  // Matches the boxes of each location with true ones of the image.
  std::vector<Matches> match_all(std::span<const float> codes, const Priors& priors,
                                 const std::vector<LabelledBox>& truth) const {
    std::vector<Matches> all;
    const auto none = std::vector<int>(priors.boxes.size(), Matches::kNone);
    if (boxes_.use_prior_for_matching()) {
      const Matches matches = match(priors.boxes, truth, {}, boxes_);
      if (boxes_.share_location()) return {matches};
      for (int c = 0; c < classes(); ++c) {
        all.push_back({none, matches.overlaps});
        for (std::size_t i = 0; i < none.size() && c != background(); ++i)
          if (matches.truth[i] >= 0 && truth[static_cast<std::size_t>(matches.truth[i])].label == c)
            all.back().truth[i] = matches.truth[i];
      }
      return all;
    }
    for (int c = 0; c < locations(); ++c) {
      const std::optional<int> label = boxes_.share_location() ? std::nullopt : std::optional(c);
      all.push_back(label == background() ? Matches{none, std::vector<float>(none.size())}
                                          : match(decoded(codes, priors, c), truth, label, boxes_));
    }
    return all;
  }

  // Notes what the boxes of one image are to learn.
  bool learn(Context& ctx, Bottoms bottom, const Priors& priors, std::int64_t image,
             const std::vector<LabelledBox>& truth) {
    const auto first_code = static_cast<std::size_t>(image * bottom[0]->shape().count(1));
    const auto first_score = static_cast<std::size_t>(image * bottom[1]->shape().count(1));
    const std::span<const float> codes = bottom[0]->data.host().subspan(first_code),
                                 scores = bottom[1]->data.host().subspan(first_score);
    if (truth.empty() && mines()) return true;
    std::vector<Matches> matches = match_all(codes, priors, truth);
    std::vector<std::int64_t> negatives;
    if (mines()) {
      const std::vector<float> losses = mining_losses(codes, scores, priors, truth, matches[0]);
      const bool by_prior = boxes_.use_prior_for_nms() || !boxes_.has_nms_param();
      negatives =
          mine(matches[0], losses, by_prior ? priors.boxes : decoded(codes, priors, 0), boxes_);
    }
    std::vector<int> labels(priors.boxes.size(), without_match());
    std::vector<bool> learns(priors.boxes.size(), !mines());
    for (std::size_t location = 0; location < matches.size(); ++location)
      for (std::size_t i = 0; i < labels.size(); ++i) {
        const int of = matches[location].truth[i];
        if (of < 0) continue;
        const LabelledBox& box = truth[static_cast<std::size_t>(of)];
        const std::size_t at = 4 * (i * static_cast<std::size_t>(locations()) + location);
        if (!can_encode(priors.boxes[i], code(), box.box)) return cannot_encode(ctx, image, i);
        codes_.push_back(target(codes.subspan(at).first<4>(), priors, i, box.box));
        codes_.back().at = first_code + at;
        labels[i] = class_of(box);
        learns[i] = true;
        ++matched_;
      }
    add_rows(first_score, labels, learns);
    for (const std::int64_t i : negatives)
      rows_.push_back({first_score + static_cast<std::size_t>(i * classes()), background_class()});
    return true;
  }

  bool cannot_encode(Context& ctx, std::int64_t image, std::size_t prior) const {
    ctx.fail(
        {Code::kData, str(layer_place(param()), ": prior ", prior, " or the true box of image ",
                          image, " that it matches has no width or no height, which code_type ",
                          PriorBoxParameter::CodeType_Name(boxes_.code_type()), " divides by")},
        image);
    return false;
  }

  void add_rows(std::size_t first, const std::vector<int>& labels,
                const std::vector<bool>& learns) {
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (learns[i]) rows_.push_back({first + i * boxes_.num_classes(), labels[i]});
  }

  int class_of(const LabelledBox& box) const {
    return boxes_.map_object_to_agnostic() ? background() + 1 : box.label;
  }
  int background_class() const { return background() < classes() ? background() : -1; }
  int without_match() const { return softmax() || mines() ? background_class() : -1; }

  // Computes the errors of a box's code. With bp_inside a corner outside the image has none.
  CodeTarget target(std::span<const float, 4> numbers, const Priors& priors, std::size_t i,
                    const Box& truth) const {
    const FourNumbers want = encode(priors.boxes[i], priors.variances[i], code(), truth);
    CodeTarget target;
    for (std::size_t k = 0; k < 4; ++k) {
      target.unit[k] = boxes_.encode_variance_in_target() ? 1 / priors.variances[i][k] : 1;
      target.error[k] = (numbers[k] - want[k]) * target.unit[k];
    }
    if (!boxes_.bp_inside()) return target;
    const Box box = boxes_.use_prior_for_matching()
                        ? priors.boxes[i]
                        : decode(priors.boxes[i], priors.variances[i], code(), numbers);
    const FourNumbers corners{box.xmin, box.ymin, box.xmax, box.ymax};
    for (std::size_t k = 0; k < 4; ++k)
      if (corners[k] < 0 || corners[k] > 1) target.error[k] = 0;
    return target;
  }

  // Computes the loss of each box by which it is mined.
  std::vector<float> mining_losses(std::span<const float> codes, std::span<const float> scores,
                                   const Priors& priors, const std::vector<LabelledBox>& truth,
                                   const Matches& matches) const {
    std::vector<float> losses;
    const bool hard = boxes_.mining_type() == MultiBoxLossParameter::HARD_EXAMPLE;
    for (std::size_t i = 0; i < priors.boxes.size(); ++i) {
      const int of = matches.truth[i];
      const LabelledBox* const box = of < 0 ? nullptr : &truth[static_cast<std::size_t>(of)];
      double loss = class_loss_of(scores.subspan(i * boxes_.num_classes(), boxes_.num_classes()),
                                  box ? class_of(*box) : background_class());
      if (hard && box && can_encode(priors.boxes[i], code(), box->box))
        for (const float error : target(codes.subspan(4 * i).first<4>(), priors, i, box->box).error)
          loss += error_loss(error);
      losses.push_back(static_cast<float>(loss));
    }
    return losses;
  }

  double class_loss_of(std::span<const float> scores, int label) const {
    if (softmax())
      return -std::max(scores[static_cast<std::size_t>(label)] - log_sum(scores),
                       std::log(double{FLT_MIN}));
    double loss = 0;
    for (int c = 0; c < static_cast<int>(scores.size()); ++c) {
      const double x = scores[static_cast<std::size_t>(c)];
      loss += std::max(x, 0.0) - x * (c == label) + std::log1p(std::exp(-std::fabs(x)));
    }
    return loss;
  }

  double error_loss(double error) const {
    const bool squares = boxes_.loc_loss_type() == MultiBoxLossParameter::L2;
    return squares || std::fabs(error) < 1 ? error * error / 2 : std::fabs(error) - 0.5;
  }
  double slope(double error) const {
    const bool squares = boxes_.loc_loss_type() == MultiBoxLossParameter::L2;
    return squares ? error : std::clamp(error, -1.0, 1.0);
  }

  double code_loss() const {
    double sum = 0;
    for (const CodeTarget& code : codes_)
      for (const float error : code.error) sum += error_loss(error);
    return sum;
  }

  // Sums the losses of the classes, and keeps their slopes for backward.
  double class_loss(std::span<const float> scores) {
    class_slopes_.clear();
    double sum = 0;
    for (const ClassTarget& row : rows_) {
      const std::span<const float> own = scores.subspan(row.at, boxes_.num_classes());
      sum += class_loss_of(own, row.label);
      const double log_of_sum = softmax() ? log_sum(own) : 0;
      for (int c = 0; c < static_cast<int>(own.size()); ++c) {
        const double x = own[static_cast<std::size_t>(c)];
        const double p = softmax() ? std::exp(x - log_of_sum) : 1 / (1 + std::exp(-x));
        class_slopes_.push_back(static_cast<float>(p - (c == row.label)));
      }
    }
    return sum;
  }

  MultiBoxLossParameter boxes_;
  std::int64_t priors_ = 0, images_ = 0, matched_ = 0;
  std::vector<CodeTarget> codes_;  // of this pass, as the others
  std::vector<ClassTarget> rows_;
  std::vector<float> class_slopes_;  // num_classes for each of rows_
  double normalizer_ = 1;
};

}  // namespace

std::unique_ptr<Layer> make_MultiBoxLoss(const LayerParameter& param) {
  return std::make_unique<MultiBoxLoss>(param);
}

}  // namespace shoal
