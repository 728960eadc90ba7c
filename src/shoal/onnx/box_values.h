// Boxes as values of a graph: what the layers that find objects have in common.
#pragma once

#include <string>

#include "shoal/onnx/layer_export.h"

namespace shoal::onnx {

// Returns numbers [begin, end) of the last axis of a value with so many axes.
std::string cut(LayerExport& x, const std::string& value, int axes, std::int64_t begin,
                std::int64_t end);
// Returns four values with a last axis of 1 as one, whose last axis has 4.
std::string joined(LayerExport& x, const Names& values);
// Keeps, of the boxes (B, K, 4) of each item that overlap by more than `threshold`, the one with
// the best score of `scores` (B, 1, K) above `least`, and `most` at most. Returns (M, 2): item and
// box, the items in turn, of each the best first.
struct Suppression {
  float threshold = 0, least = 0;
  std::int64_t most = 0;
};
std::string suppressed(LayerExport& x, const std::string& boxes, const std::string& scores,
                       const Suppression& suppression);
// Makes the top (1, 1, K, 7) of detections: image (M), label (M), score (M) and box (M, 4); if M is
// 0, of a row for each image of `batch` (a value with the images on axis 0): its number and six
// times -1.
struct Detections {
  std::string image, label, score, box;
};
void give_detections(LayerExport& x, const Detections& found, const std::string& batch);
// Returns whole numbers as floats.
std::string as_floats(LayerExport& x, const std::string& value);
// Returns a value of one axis more, of size 1, at `axis`.
std::string with_axis(LayerExport& x, const std::string& value, std::int64_t axis);
// Returns 0, 1, ... for each item of a value's axis 0, as whole numbers.
std::string item_numbers(LayerExport& x, const std::string& value);

}  // namespace shoal::onnx
