// Yolov3 layer: the loss of YOLO v3.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "shoal/layers/yolo_loss.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// YoloLoss has the shapes. Boxes of this layer are those that `mask` names among all biases, which
// are in pixels of an image of anchors_scale * (W x H). With p the sigmoid of a number:
//   each box steps by p of its object's number, or not at all if its best agreement with a truth is
//   above thresh (iou_loss says which agreement; MSE: IoU)
//   of each truth, the bias that fits its size best takes it, if this layer has it, at the truth's
//   cell; then each bias of this layer that agrees by more than iou_thresh and whose number is not
//   that bias's number in `mask` (not among all biases: the fork compares these two) takes it too
//   who takes a truth: centre and log of size step towards it by coord_scale (2 - the truth's
//   area), or, with IOU, GIOU, DIOU and CIOU, x, y, w, h by iou_normalizer times the slope of the
//   agreement, at most max_delta each, on top of what is there (accumulate); its object by p - 1;
//   its classes by class_scale (p - target), targets smoothed by label_smooth_eps; a class that has
//   a step already moves alone
// use_logic_gradient multiplies steps of the object by object_scale, where there is a truth, and
// all that goes backward but w and h by p (1 - p) (in the fork, with IOU ... CIOU, x and y by x (1
// - x)); noobject_scale is not used, as in the fork. The loss is the sum of the squares of the
// steps, but for IOU ... CIOU of those after the box alone, plus iou_normalizer times the mean of 1
// - agreement. Source: Redmon and Farhadi, "YOLOv3", 2018, as MobileNet-YOLO's fork has it;
// yolo_boxes.h says more.
class Yolov3 final : public YoloLoss {
 public:
  using YoloLoss::YoloLoss;
  void setup(Context&, Bottoms, Tops) override {
    if (loss().mask_size() != static_cast<int>(loss().num()))
      throw config_error(param(), "has ", loss().mask_size(), " numbers in mask; num is ",
                         loss().num(), ", the boxes of this layer, one number each");
    check_biases(loss().biases(), loss().biases_size() / 2);
    for (const std::uint32_t bias : loss().mask())
      if (2 * static_cast<std::int64_t>(bias) + 1 >= loss().biases_size())
        throw config_error(param(), "mask names bias ", bias, ", but biases has ",
                           loss().biases_size() / 2, " pairs of width and height");
    if (loss().anchors_scale() < 1)
      throw config_error(param(), "anchors_scale is 0; it is pixels a cell, as 32");
  }

 private:
  const Yolov3Parameter& loss() const { return param().yolov3_param(); }
  std::int64_t boxes() const override { return loss().num(); }
  std::int64_t classes() const override { return loss().num_class(); }
  bool squares_boxes() const { return loss().iou_loss() == Yolov3Parameter::MSE; }
  Agreement measure() const {
    switch (loss().iou_loss()) {
      case Yolov3Parameter::GIOU: return Agreement::kGiou;
      case Yolov3Parameter::DIOU: return Agreement::kDiou;
      case Yolov3Parameter::CIOU: return Agreement::kCiou;
      default: return Agreement::kIou;
    }
  }

  // The size of a bias, of all there are, as part of the image.
  CentredBox bias(int n, const Grid& grid) const {
    const auto scale = static_cast<float>(loss().anchors_scale());
    return {0, 0, loss().biases(2 * n) / (static_cast<float>(grid.width) * scale),
            loss().biases(2 * n + 1) / (static_cast<float>(grid.height) * scale)};
  }
  CentredBox bias_of(int box, const Grid& grid) const {
    return bias(static_cast<int>(loss().mask(box)), grid);
  }
  int biases() const { return loss().biases_size() / 2; }
  // Returns which box of this layer has the bias; -1: none.
  int box_of(int bias) const {
    for (int box = 0; box < loss().mask_size(); ++box)
      if (static_cast<int>(loss().mask(box)) == bias) return box;
    return -1;
  }

  void step(const Grid& grid, const std::vector<Truth>& truths) override {
    for (std::int64_t place = 0; place < grid.places(); ++place)
      for (int box = 0; box < loss().mask_size(); ++box) {
        const CentredBox at = grid.box_at(box, place, bias_of(box, grid));
        float best = 0;
        for (const Truth& truth : truths)
          best = std::max(best, agreement(at, truth.box, measure()));
        const std::int64_t object = grid.at(box, place, kObject);
        if (!(best > loss().thresh())) grid.step[object] = sigmoid_of(grid.x[object]);
      }
    for (const Truth& truth : truths) give(grid, truth);
    collect_squares(grid);
    if (loss().use_logic_gradient()) bend(grid);
  }
  // Gives the truth to the boxes that take it.
  void give(const Grid& grid, const Truth& truth) {
    const CentredBox size{0, 0, truth.box.w, truth.box.h};
    std::vector<float> fits;
    for (int n = 0; n < biases(); ++n) fits.push_back(agreement(bias(n, grid), size, measure()));
    int best = -1;
    for (int n = 0; n < biases(); ++n)
      if (fits[static_cast<std::size_t>(n)] > (best < 0 ? 0 : fits[static_cast<std::size_t>(best)]))
        best = n;
    if (const int box = box_of(best); box >= 0) {
      take(grid, truth, box);
      best = box;
    }
    if (loss().iou_thresh() >= 1) return;
    for (int n = 0; n < biases(); ++n)
      if (box_of(n) >= 0 && n != best && fits[static_cast<std::size_t>(n)] > loss().iou_thresh())
        take(grid, truth, box_of(n));
  }
  void take(const Grid& grid, const Truth& truth, int box) {
    const std::int64_t place = truth.place(grid), object = grid.at(box, place, kObject);
    if (squares_boxes())
      approach(grid, truth, box);
    else
      agree(grid, truth, box);
    grid.step[object] = sigmoid_of(grid.x[object]) - 1;
    if (loss().use_logic_gradient()) grid.step[object] *= loss().object_scale();
    take_class(grid, truth, box);
  }
  // Steps towards the truth's numbers.
  void approach(const Grid& grid, const Truth& truth, int box) const {
    const std::int64_t place = truth.place(grid);
    const CentredBox size = bias_of(box, grid);
    const float scale = loss().coord_scale() * (2 - truth.box.w * truth.box.h);
    const std::array<float, 4> targets = numbers_of(truth.box, grid.cell(place), size);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::int64_t at = grid.at(box, place, static_cast<std::int64_t>(i));
      grid.step[at] = -scale * (targets[i] - (i < 2 ? sigmoid_of(grid.x[at]) : grid.x[at]));
    }
  }
  // Steps along the slope of the agreement.
  void agree(const Grid& grid, const Truth& truth, int box) {
    const std::int64_t place = truth.place(grid);
    CentredBox at = grid.box_at(box, place, bias_of(box, grid));
    // Both IOU and DIOU count by DIoU in the loss, as in the fork.
    const Agreement kind = measure();
    apart_ += 1 - agreement(at, truth.box, kind == Agreement::kIou ? Agreement::kDiou : kind);
    ++taken_;
    if (at.w == 0) at.w = 1;
    if (at.h == 0) at.h = 1;
    const CentredBox slope = agreement_slope(at, truth.box, kind);
    const float slopes[] = {slope.x, slope.y, slope.w * std::exp(grid.x[grid.at(box, place, 2)]),
                            slope.h * std::exp(grid.x[grid.at(box, place, 3)])};
    for (std::int64_t i = 0; i < 4; ++i) {
      float& step = grid.step[grid.at(box, place, i)];
      const float by = loss().iou_normalizer() * slopes[i];
      if (!loss().accumulate()) step = 0;
      if (std::isfinite(by)) step -= std::clamp(by, -loss().max_delta(), loss().max_delta());
    }
  }
  float smoothed(float target) const {
    const float eps = loss().label_smooth_eps();
    return target * (1 - eps) + 0.5f * eps;
  }
  void take_class(const Grid& grid, const Truth& truth, int box) const {
    const std::int64_t place = truth.place(grid);
    const auto at = [&](std::int64_t c) { return grid.at(box, place, kFirstClass + c); };
    const std::int64_t own = at(truth.label);
    const float p_own = sigmoid_of(grid.x[own]);
    if (grid.step[own] != 0) {
      grid.step[own] = loss().class_scale() * (p_own - smoothed(1));
      return;
    }
    const float pt = p_own + 1e-15f, focus = -0.5f * (1 - pt) * (2 * pt * std::log(pt) + pt - 1);
    for (std::int64_t c = 0; c < grid.classes; ++c) {
      const float target = c == truth.label ? 1.0f : 0.0f, p = sigmoid_of(grid.x[at(c)]);
      grid.step[at(c)] = loss().class_scale() *
                         (loss().use_focal_loss() ? (p - target) * focus : p - smoothed(target));
    }
  }
  void collect_squares(const Grid& grid) {
    for (std::int64_t box = 0; box < grid.boxes; ++box)
      for (std::int64_t i = squares_boxes() ? 0 : kObject; i < kFirstClass + grid.classes; ++i)
        for (std::int64_t place = 0; place < grid.places(); ++place) {
          const double step = grid.step[grid.at(box, place, i)];
          squares_ += step * step;
        }
  }
  // Multiplies the steps by the slopes of their sigmoids.
  static void bend(const Grid& grid) {
    for (std::int64_t box = 0; box < grid.boxes; ++box)
      for (std::int64_t i = 0; i < kFirstClass + grid.classes; ++i)
        for (std::int64_t place = 0; i != 2 && i != 3 && place < grid.places(); ++place) {
          const std::int64_t at = grid.at(box, place, i);
          const float p = sigmoid_of(grid.x[at]);
          grid.step[at] *= p * (1 - p);
        }
  }
  void begin() override {
    squares_ = apart_ = 0;
    taken_ = 0;
  }
  double loss_of(std::span<const float>) const override {
    if (taken_ == 0) return squares_;
    return squares_ + double{loss().iou_normalizer()} * apart_ / static_cast<double>(taken_);
  }

  double squares_ = 0, apart_ = 0;  // of this pass
  std::int64_t taken_ = 0;          // boxes that apart_ is of
};

}  // namespace

std::unique_ptr<Layer> make_Yolov3(const LayerParameter& param) {
  return std::make_unique<Yolov3>(param);
}

}  // namespace shoal
