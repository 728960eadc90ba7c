// RegionLoss layer: the loss of YOLO v2.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/layers/yolo_loss.h"
#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

// YoloLoss has the shapes; maps are square. With p the sigmoid of the object's number and s' its
// slope p (1 - p):
//   each box steps by noobject_scale p s', or not at all if it covers more than thresh (as IoU) of
//   any truth; its centre is (column + sigmoid(x)) / W, its width exp(w) bias / W
//   of each truth the box of its cell that fits best, both moved to one place (with bias_match by
//   the bias alone), takes the truth: centre, log of size, object (IoU, or 1 without rescore) and
//   the softmax of classes step towards it by coord_scale, object_scale and class_scale; without
//   rescore coord_scale is times 2 - the truth's area
// The first of equal boxes fits best; the last of several truths of one box counts. The loss is the
// sum of the squares of all steps. Source: Redmon and Farhadi, "YOLO9000", 2016, as
// MobileNet-YOLO's fork has it.
class RegionLoss final : public YoloLoss {
 public:
  using YoloLoss::YoloLoss;
  void setup(Context&, Bottoms bottoms, Tops) override {
    if (loss().coords() != 4)
      throw config_error(param(), "coords is ", loss().coords(), "; a box has 4");
    check_biases(loss().biases(), static_cast<int>(loss().num()));
    const Shape& shape = bottoms[0]->shape();
    if (shape.axes() == 4 && shape[2] != shape[3])
      throw config_error(param(), "bottom '", bottoms[0]->name, "' of shape ", shape.str(),
                         " is not square; this layer takes square maps only, Yolov3 others too");
    if (loss().has_class_map() || loss().has_softmax_tree())
      LOG(INFO) << layer_place(param()) << ": class_map and softmax_tree are passed over; the fork "
                << "does not use them either";
  }

 private:
  const RegionLossParameter& loss() const { return param().region_loss_param(); }
  std::int64_t boxes() const override { return loss().num(); }
  std::int64_t classes() const override { return loss().num_class(); }

  CentredBox bias(std::int64_t box, const Grid& grid) const {
    const int at = static_cast<int>(2 * box);
    return {0, 0, loss().biases(at) / static_cast<float>(grid.width),
            loss().biases(at + 1) / static_cast<float>(grid.height)};
  }
  void step(const Grid& grid, const std::vector<Truth>& truths) override {
    for (std::int64_t place = 0; place < grid.places(); ++place)
      for (std::int64_t box = 0; box < grid.boxes; ++box) {
        const CentredBox at = grid.box_at(box, place, bias(box, grid));
        float best = 0;
        for (const Truth& truth : truths)
          best = std::max(best, agreement(at, truth.box, Agreement::kIou));
        if (best > loss().thresh()) continue;
        const std::int64_t object = grid.at(box, place, kObject);
        const float p = sigmoid_of(grid.x[object]);
        grid.step[object] = loss().noobject_scale() * p * p * (1 - p);
      }
    for (const Truth& truth : truths) take(grid, truth, best_box(grid, truth));
  }
  std::int64_t best_box(const Grid& grid, const Truth& truth) const {
    float best = 0;
    std::int64_t best_box = 0;
    for (std::int64_t box = 0; box < grid.boxes; ++box) {
      CentredBox size = bias(box, grid);
      if (!loss().bias_match()) {
        const CentredBox at = grid.box_at(box, truth.place(grid), size);
        size = {0, 0, at.w, at.h};
      }
      const float iou = agreement(size, {0, 0, truth.box.w, truth.box.h}, Agreement::kIou);
      if (iou > best) {
        best = iou;
        best_box = box;
      }
    }
    return best_box;
  }
  void take(const Grid& grid, const Truth& truth, std::int64_t box) const {
    const std::int64_t place = truth.place(grid);
    const CentredBox size = bias(box, grid);
    const float iou = agreement(grid.box_at(box, place, size), truth.box, Agreement::kIou);
    const float scale =
        loss().coord_scale() * (loss().rescore() ? 1.0f : 2 - truth.box.w * truth.box.h);
    const std::array<float, 4> targets = numbers_of(truth.box, grid.cell(place), size);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::int64_t at = grid.at(box, place, static_cast<std::int64_t>(i));
      const float x = grid.x[at], p = sigmoid_of(x);
      grid.step[at] = i < 2 ? -scale * (targets[i] - p) * p * (1 - p) : -scale * (targets[i] - x);
    }
    const std::int64_t object = grid.at(box, place, kObject);
    const float p = sigmoid_of(grid.x[object]), wanted = loss().rescore() ? iou : 1.0f;
    grid.step[object] = -loss().object_scale() * (wanted - p) * p * (1 - p);
    take_class(grid, truth, box);
  }
  void take_class(const Grid& grid, const Truth& truth, std::int64_t box) const {
    const auto at = [&](std::int64_t c) {
      return grid.at(box, truth.place(grid), kFirstClass + c);
    };
    float largest = grid.x[at(0)], sum = 0;
    for (std::int64_t c = 1; c < grid.classes; ++c) largest = std::max(largest, grid.x[at(c)]);
    for (std::int64_t c = 0; c < grid.classes; ++c) sum += std::exp(grid.x[at(c)] - largest);
    for (std::int64_t c = 0; c < grid.classes; ++c)
      grid.step[at(c)] = -loss().class_scale() * ((c == truth.label ? 1.0f : 0.0f) -
                                                  std::exp(grid.x[at(c)] - largest) / sum);
  }
  double loss_of(std::span<const float> steps) const override {
    double sum = 0;
    for (const float step : steps) sum += double{step} * double{step};
    return sum;
  }
};

}  // namespace

std::unique_ptr<Layer> make_RegionLoss(const LayerParameter& param) {
  return std::make_unique<RegionLoss>(param);
}

}  // namespace shoal
