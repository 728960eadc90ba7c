// YoloDetectionOutput layer: the boxes that a YOLO v2 net found.
#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/layers/yolo_output.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// YoloOutput has the shapes; one or two bottoms. A box has the numbers x, y, w, h, of an object,
// and one a class. Its centre is (column + sigmoid(x)) / W, its width exp(w) times its bias over W,
// in height likewise; its label the best class, its score the sigmoid times the softmax of that.
// Boxes with a score of confidence_threshold or more count. Source: Redmon and Farhadi, "YOLO9000",
// 2016, as MobileNet-YOLO's fork has it.
class YoloDetectionOutput final : public YoloOutput {
 public:
  using YoloOutput::YoloOutput;
  Arity arity() const override { return {.min_bottoms = 1, .max_bottoms = 2}; }
  void setup(Context&, Bottoms, Tops) override {
    const YoloDetectionOutputParameter& output = detection();
    if (!output.has_num_classes() || output.num_classes() < 1)
      throw config_error(param(), "needs num_classes, the classes that its bottom tells apart");
    if (output.coords() != 4)
      throw config_error(param(), "coords is ", output.coords(), "; a box has 4");
    if (output.biases_size() != 2 * static_cast<int>(output.num_box()))
      throw config_error(param(), "has ", output.biases_size(), " biases; ", output.num_box(),
                         " boxes (num_box) need ", 2 * output.num_box(),
                         ": width and height of each, in cells");
    if (output.has_label_map_file())
      LOG(INFO) << layer_place(param()) << ": label_map_file names labels for pictures; it is "
                << "passed over";
  }

 private:
  static constexpr std::int64_t kObject = 4, kClasses = 5;
  const YoloDetectionOutputParameter& detection() const {
    return param().yolo_detection_output_param();
  }
  Sizes sizes() const override {
    return {detection().num_box(), kClasses + detection().num_classes(), 1,
            detection().nms_threshold()};
  }
  void find(const Cell& cell, std::size_t, std::int64_t box,
            std::vector<FoundObject>& found) const override {
    FoundObject object;
    for (std::int64_t c = 1; c < detection().num_classes(); ++c)
      if (cell[kClasses + c] > cell[kClasses + object.label]) object.label = c;
    float sum = 0;
    for (std::int64_t c = 0; c < detection().num_classes(); ++c)
      sum += std::exp(cell[kClasses + c] - cell[kClasses + object.label]);
    object.score = sigmoid_of(cell[kObject]) / sum;
    if (!(object.score >= detection().confidence_threshold())) return;
    const int bias = static_cast<int>(2 * box);
    const auto width = static_cast<float>(cell.at.width),
               height = static_cast<float>(cell.at.height);
    object.box = box_in_cell(
        cell.at, {cell[0], cell[1], cell[2], cell[3]},
        {0, 0, detection().biases(bias) / width, detection().biases(bias + 1) / height});
    found.push_back(object);
  }
};

}  // namespace

std::unique_ptr<Layer> make_YoloDetectionOutput(const LayerParameter& param) {
  return std::make_unique<YoloDetectionOutput>(param);
}

}  // namespace shoal
