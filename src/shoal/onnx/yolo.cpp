// Converts the layers that make boxes of what YOLO's nets compute.
#include <cmath>

#include "shoal/onnx/box_values.h"
#include "shoal/onnx/converters.h"

namespace shoal::onnx {
namespace {

// Returns the next smaller number.
float below(float x) { return std::nextafter(x, -INFINITY); }

// Letters of the shapes: N images, B boxes of all cells, in the order (h, w, box).
class YoloExport {
 public:
  explicit YoloExport(LayerExport& x) : x_(x), n_(x.bottom_dims(0)[0]) {}

  // Returns the numbers of each box of a bottom: (N, B, numbers).
  std::string cells(int bottom, std::int64_t boxes, std::int64_t numbers) {
    const std::int64_t places = x_.bottom(bottom).count(2);
    const std::string value = x_.reshaped(x_.in(bottom), {n_, {boxes}, {numbers}, {places}});
    return x_.reshaped(x_.add("Transpose", {value}, {{"perm", Sizes{0, 3, 1, 2}}}),
                       {n_, {places * boxes}, {numbers}});
  }
  // Returns the corners (N, B, 4) of boxes with centres and sizes in cells (N, B, 2), whose biases
  // are of a size that is `scale` times that of a cell.
  std::string corners(int bottom, const std::string& centre, const std::string& size,
                      const std::vector<float>& biases, float scale) {
    const std::int64_t height = x_.bottom(bottom)[2], width = x_.bottom(bottom)[3];
    const auto w = static_cast<float>(width), h = static_cast<float>(height);
    std::vector<float> cell, factor;
    for (std::int64_t place = 0; place < height * width; ++place)
      for (std::size_t bias = 0; bias < biases.size(); bias += 2) {
        const std::int64_t row = place / width, column = place % width;
        cell.push_back(static_cast<float>(column));
        cell.push_back(static_cast<float>(row));
        factor.push_back(biases[bias] / (w * scale));
        factor.push_back(biases[bias + 1] / (h * scale));
      }
    const Sizes dims{1, std::ssize(cell) / 2, 2};
    const std::string middle =
        x_.add("Div", {x_.add("Add", {x_.add("Sigmoid", {centre}), x_.numbers(cell, dims)}),
                       x_.numbers({w, h}, {2})});
    const std::string length = x_.add("Mul", {x_.add("Exp", {size}), x_.numbers(factor, dims)});
    const std::string half = x_.add("Mul", {length, x_.number(0.5f)});
    return joined(x_, {x_.add("Sub", {middle, half}), x_.add("Add", {middle, half})});
  }
  // Makes the top of boxes (N, B, 4), scores (N, B) above `least` and labels (N, B) from 0 on, in
  // whole numbers.
  void give(const std::string& boxes, const std::string& scores, const std::string& labels,
            float least, float threshold) {
    // An overlap of just the threshold is too much.
    const std::string kept = suppressed(x_, boxes, with_axis(x_, scores, 1),
                                        {below(threshold), least, std::int64_t{1} << 40});
    const std::string label = x_.add("Add", {x_.add("GatherND", {labels, kept}), x_.integer(1)});
    const std::string image = x_.reshaped(cut(x_, kept, 2, 0, 1), {{0, Dim::Kind::kUnknown}});
    give_detections(x_,
                    {as_floats(x_, image), as_floats(x_, label), x_.add("GatherND", {scores, kept}),
                     x_.add("GatherND", {boxes, kept})},
                    x_.in(0));
  }
  std::string joined_boxes(const Names& values) {
    return x_.add("Concat", values, {{"axis", std::int64_t{1}}});
  }

 private:
  LayerExport& x_;
  Dim n_;
};

// Returns numbers `first` and first + 1 of a box, each of which gaussian_box gives a deviation.
std::string coordinates(LayerExport& x, const std::string& cells, std::int64_t first) {
  if (!x.param().yolov3_detection_output_param().gaussian_box())
    return cut(x, cells, 3, first, first + 2);
  return x.add("Gather", {cells, x.integers({2 * first, 2 * first + 2})},
               {{"axis", std::int64_t{2}}});
}

// Returns 1 less the mean deviation of a box's four numbers.
std::string certainty(LayerExport& x, const std::string& cells) {
  const std::string deviations =
      x.add("Gather", {cells, x.integers({1, 3, 5, 7})}, {{"axis", std::int64_t{2}}});
  const std::string mean = x.add("ReduceMean", {x.add("Sigmoid", {deviations})},
                                 {{"axes", Sizes{2}}, {"keepdims", std::int64_t{1}}});
  return x.add("Sub", {x.number(1), mean});
}

}  // namespace

void convert_yolo_detection_output(LayerExport& x) {
  const YoloDetectionOutputParameter& output = x.param().yolo_detection_output_param();
  YoloExport yolo(x);
  Names boxes, scores, labels;
  const std::int64_t numbers = 5 + output.num_classes(), last = 2;
  for (int i = 0; i < x.bottoms(); ++i) {
    const std::string cells = yolo.cells(i, output.num_box(), numbers);
    boxes.push_back(yolo.corners(i, cut(x, cells, 3, 0, 2), cut(x, cells, 3, 2, 4),
                                 {output.biases().begin(), output.biases().end()}, 1));
    const std::string classes = x.add("Softmax", {cut(x, cells, 3, 5, numbers)}, {{"axis", last}});
    const std::string object = x.add("Sigmoid", {cut(x, cells, 3, 4, 5)});
    const std::string best =
        x.add("ReduceMax", {classes}, {{"axes", Sizes{last}}, {"keepdims", std::int64_t{1}}});
    scores.push_back(x.add("Squeeze", {x.add("Mul", {object, best}), x.integers({last})}));
    labels.push_back(x.add("ArgMax", {classes}, {{"axis", last}, {"keepdims", std::int64_t{0}}}));
  }
  yolo.give(yolo.joined_boxes(boxes), yolo.joined_boxes(scores), yolo.joined_boxes(labels),
            below(output.confidence_threshold()), output.nms_threshold());
}

void convert_yolov3_detection_output(LayerExport& x) {
  const Yolov3DetectionOutputParameter& output = x.param().yolov3_detection_output_param();
  YoloExport yolo(x);
  const std::int64_t boxes = output.num_box(), classes = output.num_classes(),
                     object = output.gaussian_box() ? 8 : 4, end = object + 1 + classes;
  Names all_boxes, all_scores, all_labels;
  for (int i = 0; i < x.bottoms(); ++i) {
    std::vector<float> biases;
    for (int k = 0; k < boxes; ++k) {
      const int bias = static_cast<int>(2 * output.mask(i * static_cast<int>(boxes) + k));
      biases.insert(biases.end(), {output.biases(bias), output.biases(bias + 1)});
    }
    const std::string cells = yolo.cells(i, boxes, end);
    const std::string corners = yolo.corners(i, coordinates(x, cells, 0), coordinates(x, cells, 2),
                                             biases, static_cast<float>(output.anchors_scale(i)));
    std::string certain = x.add("Sigmoid", {cut(x, cells, 3, object, object + 1)});
    if (output.gaussian_box()) certain = x.add("Mul", {certain, certainty(x, cells)});
    const std::string scores =
        x.add("Mul", {x.add("Sigmoid", {cut(x, cells, 3, object + 1, end)}), certain});
    // A box is a candidate once for each class.
    const std::int64_t candidates = boxes * x.bottom(i).count(2) * classes;
    const Dim n = x.bottom_dims(0)[0];
    const std::string repeated =
        x.add("Tile", {x.reshaped(corners, {n, {candidates / classes}, {1}, {4}}),
                       x.integers({1, 1, classes, 1})});
    all_boxes.push_back(x.reshaped(repeated, {n, {candidates}, {4}}));
    all_scores.push_back(x.reshaped(scores, {n, {candidates}}));
    Sizes labels;
    for (std::int64_t k = 0; k < candidates; ++k) labels.push_back(k % classes);
    all_labels.push_back(x.integers(labels));
  }
  const std::string scores = yolo.joined_boxes(all_scores);
  const std::string labels = x.add("Concat", all_labels, {{"axis", std::int64_t{0}}});
  yolo.give(yolo.joined_boxes(all_boxes), scores,
            x.add("Expand", {labels, x.add("Shape", {scores})}), output.confidence_threshold(),
            output.nms_threshold());
}

}  // namespace shoal::onnx
