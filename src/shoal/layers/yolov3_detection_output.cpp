// Yolov3DetectionOutput layer: the boxes that a YOLO v3 net found.
#include <cmath>
#include <vector>

#include "shoal/layers/yolo_output.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// YoloOutput has the shapes; mask_group_num bottoms, each with num_box boxes a place: those that
// its part of `mask` names among the biases. A box has the numbers x, y, w, h, of an object, and
// one a class; with gaussian_box each of the first four is followed by its deviation. Its centre is
// (column + sigmoid(x)) / W, its width exp(w) times its bias over W times anchors_scale, in height
// likewise. It is an object of each class whose score, the product of both sigmoids, is above
// confidence_threshold; with gaussian_box the score is times 1 - the mean deviation. Sources:
// Redmon and Farhadi, "YOLOv3", 2018; Choi et al., "Gaussian YOLOv3", 2019; as MobileNet-YOLO's
// fork has them.
class Yolov3DetectionOutput final : public YoloOutput {
 public:
  using YoloOutput::YoloOutput;
  Arity arity() const override { return {.min_bottoms = 1, .max_bottoms = Arity::kAny}; }
  void setup(Context&, Bottoms bottom, Tops) override {
    const Yolov3DetectionOutputParameter& output = detection();
    const int groups = static_cast<int>(bottom.size()), boxes = static_cast<int>(output.num_box());
    if (!output.has_num_classes() || output.num_classes() < 1)
      throw config_error(param(), "needs num_classes, the classes that its bottoms tell apart");
    if (groups != static_cast<int>(output.mask_group_num()))
      throw config_error(param(), "has ", groups, " bottoms; mask_group_num is ",
                         output.mask_group_num());
    if (output.mask_size() != groups * boxes || output.anchors_scale_size() != groups)
      throw config_error(param(), "has ", output.mask_size(), " numbers in mask and ",
                         output.anchors_scale_size(), " in anchors_scale; ", groups, " bottoms of ",
                         boxes, " boxes (num_box) need ", groups * boxes, " and ", groups);
    for (const std::uint32_t bias : output.mask())
      if (2 * static_cast<std::int64_t>(bias) + 1 >= output.biases_size())
        throw config_error(param(), "mask names bias ", bias, ", but biases has ",
                           output.biases_size() / 2, " pairs of width and height");
    for (const std::uint32_t scale : output.anchors_scale())
      if (scale < 1) throw config_error(param(), "an anchors_scale is 0; it is pixels a cell");
  }

 private:
  const Yolov3DetectionOutputParameter& detection() const {
    return param().yolov3_detection_output_param();
  }
  // Returns the first number after the box.
  std::int64_t object_at() const { return detection().gaussian_box() ? 8 : 4; }
  Sizes sizes() const override {
    return {detection().num_box(), object_at() + 1 + detection().num_classes(),
            detection().num_classes(), detection().nms_threshold()};
  }
  // Returns number i of the box itself.
  float coordinate(const Cell& cell, std::int64_t i) const {
    return cell[detection().gaussian_box() ? 2 * i : i];
  }
  float object_score(const Cell& cell) const {
    const float score = sigmoid_of(cell[object_at()]);
    if (!detection().gaussian_box()) return score;
    float certain = 4;
    for (std::int64_t i = 0; i < 4; ++i) certain -= sigmoid_of(cell[2 * i + 1]);
    return score * certain / 4;
  }
  CentredBox box_of(const Cell& cell, std::size_t bottom, std::int64_t box) const {
    const int group = static_cast<int>(bottom),
              bias = static_cast<int>(
                  2 * detection().mask(group * static_cast<int>(detection().num_box()) +
                                       static_cast<int>(box)));
    const auto width = static_cast<float>(cell.at.width),
               height = static_cast<float>(cell.at.height),
               scale = static_cast<float>(detection().anchors_scale(group));
    const auto number = [&](std::int64_t i) { return coordinate(cell, i); };
    return box_in_cell(cell.at, {number(0), number(1), number(2), number(3)},
                       {0, 0, detection().biases(bias) / (width * scale),
                        detection().biases(bias + 1) / (height * scale)});
  }
  void find(const Cell& cell, std::size_t bottom, std::int64_t box,
            std::vector<FoundObject>& found) const override {
    const float object = object_score(cell);
    for (std::int64_t c = 0; c < detection().num_classes(); ++c) {
      const float score = sigmoid_of(cell[object_at() + 1 + c]) * object;
      if (score > detection().confidence_threshold())
        found.push_back({box_of(cell, bottom, box), c, score});
    }
  }
};

}  // namespace

std::unique_ptr<Layer> make_Yolov3DetectionOutput(const LayerParameter& param) {
  return std::make_unique<Yolov3DetectionOutput>(param);
}

}  // namespace shoal
