// Implements what the layers that make boxes of YOLO's numbers have in common.
#include "shoal/layers/yolo_output.h"

#include <algorithm>
#include <cmath>

#include "shoal/proto/config_error.h"

namespace shoal {
namespace {

constexpr std::int64_t kRow = 7;  // numbers

}  // namespace

void YoloOutput::reshape(Context&, Bottoms bottom, Tops top) {
  const Sizes sizes = this->sizes();
  std::int64_t most = 0;
  for (const Blob* blob : bottom) {
    const Shape& shape = blob->shape();
    if (shape.axes() != 4 || shape[1] != sizes.boxes * sizes.numbers ||
        shape[0] != bottom[0]->shape()[0])
      throw config_error(param(), "bottom '", blob->name, "' of shape ", shape.str(), " must have ",
                         sizes.boxes * sizes.numbers, " channels: ", sizes.boxes,
                         " boxes a place of ", sizes.numbers, " numbers (num_box, num_classes), ",
                         "and the batch of the other bottoms");
    most += shape[0] * shape.count(2) * sizes.boxes * sizes.labels;
  }
  top[0]->reshape(Shape{1, 1, std::max(most, bottom[0]->shape()[0]), kRow});
}

std::vector<FoundObject> YoloOutput::find_all(Bottoms bottom, std::int64_t image) const {
  const Sizes sizes = this->sizes();
  std::vector<FoundObject> found;
  for (std::size_t b = 0; b < bottom.size(); ++b) {
    const Shape& shape = bottom[b]->shape();
    const std::int64_t plane = shape.count(2);
    const float* const item = bottom[b]->data.host().data() + image * shape.count(1);
    for (std::int64_t place = 0; place < plane; ++place)
      for (std::int64_t box = 0; box < sizes.boxes; ++box)
        find({item + box * sizes.numbers * plane + place,
              plane,
              {place / shape[3], place % shape[3], shape[2], shape[3]}},
             b, box, found);
  }
  return found;
}

void YoloOutput::size_tops(Context&, Bottoms bottom, Tops top) {
  rows_.clear();
  const std::int64_t images = bottom[0]->shape()[0];
  // An overlap of just the threshold is too much.
  const Suppression suppression{.threshold = std::nextafter(sizes().nms_threshold, -1.0f)};
  for (std::int64_t image = 0; image < images; ++image) {
    const std::vector<FoundObject> found = find_all(bottom, image);
    std::vector<Box> boxes;
    std::vector<float> scores;
    for (const FoundObject& object : found) {
      boxes.push_back(corners_of(object.box));
      scores.push_back(object.score);
    }
    for (const std::int64_t best : suppress(boxes, scores, suppression)) {
      const std::size_t at = static_cast<std::size_t>(best);
      const Box& box = boxes[at];
      const float row[] = {static_cast<float>(image),
                           static_cast<float>(found[at].label + 1),
                           scores[at],
                           box.xmin,
                           box.ymin,
                           box.xmax,
                           box.ymax};
      rows_.insert(rows_.end(), std::begin(row), std::end(row));
    }
  }
  const bool nothing = rows_.empty();
  for (std::int64_t image = 0; nothing && image < images; ++image) {
    rows_.push_back(static_cast<float>(image));
    rows_.insert(rows_.end(), kRow - 1, -1.0f);
  }
  top[0]->reshape(Shape{1, 1, static_cast<std::int64_t>(rows_.size()) / kRow, kRow});
}

void YoloOutput::forward(Context&, Bottoms, Tops top) {
  std::ranges::copy(rows_, top[0]->data.host_out().begin());
}

}  // namespace shoal
