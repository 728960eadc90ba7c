// Boxes of YOLO's layers, given by their centre: how well two agree, and the slope of that.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "shoal/layers/boxes.h"

namespace shoal {

// Centre and size, as parts of the image.
struct CentredBox {
  float x = 0, y = 0, w = 0, h = 0;
};

inline Box corners_of(const CentredBox& box) {
  return {box.x - box.w / 2, box.y - box.h / 2, box.x + box.w / 2, box.y + box.h / 2};
}

inline float sigmoid_of(float x) { return 1 / (1 + std::exp(-x)); }

// A cell of a map of height x width cells, which lie over the image.
struct MapCell {
  std::int64_t row = 0, column = 0, height = 1, width = 1;
};

// Returns the box that four numbers in a cell stand for: its centre is (column + sigmoid(x)) /
// width, its width exp(w) times the bias's; in height likewise.
CentredBox box_in_cell(const MapCell& cell, const std::array<float, 4>& numbers,
                       const CentredBox& bias);
// Returns the numbers that make the box; of x and y, their sigmoids.
std::array<float, 4> numbers_of(const CentredBox& box, const MapCell& cell, const CentredBox& bias);

// Measures of how well two boxes agree: the part that both cover (IoU), less, with GIoU, the empty
// part of the smallest box around both; with DIoU, the distance of the centres over the diagonal of
// that box, squared, to the power 0.6; with CIoU, that square and the difference of the aspects.
// Sources: Rezatofighi et al., "Generalized intersection over union", 2019; Zheng et al.,
// "Distance-IoU loss", 2020, with the power that MobileNet-YOLO's fork takes.
enum class Agreement { kIou, kGiou, kDiou, kCiou };

float agreement(const CentredBox& a, const CentredBox& b, Agreement kind);

// The slope of agreement() with respect to the numbers of `a`, as MobileNet-YOLO's fork computes
// it: those of w and h are twice the true ones, the smallest box around both counts as it is in
// that fork, and where the boxes do not meet only the terms after the IoU count.
CentredBox agreement_slope(const CentredBox& a, const CentredBox& b, Agreement kind);

}  // namespace shoal
