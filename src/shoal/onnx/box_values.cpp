#include "shoal/onnx/box_values.h"

namespace shoal::onnx {

std::string cut(LayerExport& x, const std::string& value, int axes, std::int64_t begin,
                std::int64_t end) {
  return x.add("Slice", {value, x.integers({begin}), x.integers({end}), x.integers({axes - 1})});
}

std::string joined(LayerExport& x, const Names& values) {
  return x.add("Concat", values, {{"axis", std::int64_t{-1}}});
}

std::string as_floats(LayerExport& x, const std::string& value) {
  return x.add("Cast", {value}, {{"to", kFloatType}});
}

std::string with_axis(LayerExport& x, const std::string& value, std::int64_t axis) {
  return x.add("Unsqueeze", {value, x.integers({axis})});
}

std::string item_numbers(LayerExport& x, const std::string& value) {
  const std::string items = x.add("Gather", {x.add("Shape", {value}), x.integer(0)});
  return x.add("Range", {x.integer(0), items, x.integer(1)});
}

std::string suppressed(LayerExport& x, const std::string& boxes, const std::string& scores,
                       const Suppression& suppression) {
  const std::string chosen =
      x.add("NonMaxSuppression", {boxes, scores, x.integer(suppression.most),
                                  x.number(suppression.threshold), x.number(suppression.least)});
  // Each row is item, class and box; there is one class.
  return x.add("Gather", {chosen, x.integers({0, 2})}, {{"axis", std::int64_t{1}}});
}

void give_detections(LayerExport& x, const Detections& found, const std::string& batch) {
  const std::string rows = joined(x, {with_axis(x, found.image, 1), with_axis(x, found.label, 1),
                                      with_axis(x, found.score, 1), found.box});
  const std::string images = with_axis(x, as_floats(x, item_numbers(x, batch)), 1);
  const std::string nothing = x.add("Pad", {images, x.integers({0, 0, 0, 6}), x.number(-1)});
  const std::string count = x.add("Gather", {x.add("Shape", {rows}), x.integer(0)});
  const std::string none = x.add("Equal", {count, x.integer(0)});
  const std::string each = x.add("Expand", {none, x.add("Shape", {item_numbers(x, batch)})});
  const std::string kept = x.add("Compress", {nothing, each}, {{"axis", std::int64_t{0}}});
  const std::string all = x.add("Concat", {rows, kept}, {{"axis", std::int64_t{0}}});
  x.give("Unsqueeze", {all, x.integers({0, 1})});
}

}  // namespace shoal::onnx
