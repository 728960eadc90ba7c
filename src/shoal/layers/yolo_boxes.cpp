// Implements how well two boxes agree.
#include "shoal/layers/yolo_boxes.h"

#include <algorithm>
#include <numbers>

namespace shoal {
namespace {

struct Sides {
  float w = 0, h = 0;
};

Sides sides_around(const Box& a, const Box& b) {
  return {std::max(a.xmax, b.xmax) - std::min(a.xmin, b.xmin),
          std::max(a.ymax, b.ymax) - std::min(a.ymin, b.ymin)};
}

float covered_by_both(const Box& a, const Box& b) {
  const float w = std::min(a.xmax, b.xmax) - std::max(a.xmin, b.xmin),
              h = std::min(a.ymax, b.ymax) - std::max(a.ymin, b.ymin);
  return w < 0 || h < 0 ? 0 : w * h;
}

float square(float x) { return x * x; }

// The difference of the aspects of two boxes, from 0 to 1.
float aspect_difference(const CentredBox& a, const CentredBox& b) {
  constexpr float kPi = std::numbers::pi_v<float>;
  return 4 / (kPi * kPi) * square(std::atan(b.w / b.h) - std::atan(a.w / a.h));
}
float aspect_weight(float difference, float iou) {
  return difference / (1 - iou + difference + 1e-6f);
}

// Edges of a box, or slopes with respect to them.
struct Edges {
  float top = 0, bottom = 0, left = 0, right = 0;
};

// The parts of the slope of an overlap: sizes, and their slopes with respect to the edges of a.
struct Overlap {
  Overlap(const Box& a, const Box& b)
      : both_w(std::min(a.xmax, b.xmax) - std::max(a.xmin, b.xmin)),
        both_h(std::min(a.ymax, b.ymax) - std::max(a.ymin, b.ymin)),
        both(both_w * both_h) {
    const float w = a.xmax - a.xmin, h = a.ymax - a.ymin;
    either = w * h + (b.xmax - b.xmin) * (b.ymax - b.ymin) - both;
    d_both = {a.ymin > b.ymin ? -both_w : 0, a.ymax < b.ymax ? both_w : 0,
              a.xmin > b.xmin ? -both_h : 0, a.xmax < b.xmax ? both_h : 0};
    d_either = {-w - d_both.top, w - d_both.bottom, -h - d_both.left, h - d_both.right};
  }
  bool is_apart() const { return both_w <= 0 || both_h <= 0; }
  float both_w, both_h, both, either = 0;
  Edges d_both, d_either;
};

// Returns the slope of x / y of the slopes of both.
float quotient_slope(float x, float dx, float y, float dy) { return (y * dx - x * dy) / (y * y); }

Edges quotient_slope(float x, const Edges& dx, float y, const Edges& dy) {
  return {quotient_slope(x, dx.top, y, dy.top), quotient_slope(x, dx.bottom, y, dy.bottom),
          quotient_slope(x, dx.left, y, dy.left), quotient_slope(x, dx.right, y, dy.right)};
}

void add(const Edges& more, Edges& sum) {
  sum.top += more.top;
  sum.bottom += more.bottom;
  sum.left += more.left;
  sum.right += more.right;
}

// Returns the slope with respect to the edges of the IoU, and of GIoU's term.
Edges edge_slope(const Box& a, const Box& b, Agreement kind) {
  const Overlap overlap(a, b);
  Edges slope;
  if (overlap.either > 0)
    slope = quotient_slope(overlap.both, overlap.d_both, overlap.either, overlap.d_either);
  if (kind != Agreement::kGiou) return slope;
  const Sides around = sides_around(a, b);
  const float area = around.w * around.h;
  const Edges d_area{a.ymin < b.ymin ? -around.w : 0, a.ymax > b.ymax ? around.w : 0,
                     a.xmin < b.xmin ? -around.h : 0, a.xmax > b.xmax ? around.h : 0};
  const Edges term = quotient_slope(overlap.either, overlap.d_either, area, d_area);
  if (overlap.is_apart()) return term;
  if (area > 0) add(term, slope);
  return slope;
}

// Returns the slope of the distance's term of DIoU and CIoU, negated, with the signs of that fork.
CentredBox distance_slope(const CentredBox& a, const CentredBox& b) {
  const Box at = corners_of(a), to = corners_of(b);
  const Sides around = sides_around(at, to);
  const float diagonal = square(around.w) + square(around.h),
              distance = square(a.x - b.x) + square(a.y - b.y);
  // Slopes of the sides around both with respect to the numbers of a.
  const float left = at.xmin < to.xmin ? 1 : 0, right = at.xmax > to.xmax ? 1 : 0,
              up = at.ymin < to.ymin ? 1 : 0, down = at.ymax > to.ymax ? 1 : 0;
  const auto term = [&](float side, float slope) { return 2 * side * slope * distance; };
  const float square_of = square(diagonal);
  return {(2 * (b.x - a.x) * diagonal - term(around.w, right - left)) / square_of,
          (2 * (b.y - a.y) * diagonal - term(around.h, down - up)) / square_of,
          term(around.w, 0.5f * (right + left)) / square_of,
          term(around.h, 0.5f * (down + up)) / square_of};
}

}  // namespace

CentredBox box_in_cell(const MapCell& cell, const std::array<float, 4>& numbers,
                       const CentredBox& bias) {
  return {
      (static_cast<float>(cell.column) + sigmoid_of(numbers[0])) / static_cast<float>(cell.width),
      (static_cast<float>(cell.row) + sigmoid_of(numbers[1])) / static_cast<float>(cell.height),
      std::exp(numbers[2]) * bias.w, std::exp(numbers[3]) * bias.h};
}

std::array<float, 4> numbers_of(const CentredBox& box, const MapCell& cell,
                                const CentredBox& bias) {
  return {box.x * static_cast<float>(cell.width) - static_cast<float>(cell.column),
          box.y * static_cast<float>(cell.height) - static_cast<float>(cell.row),
          std::log(box.w / bias.w), std::log(box.h / bias.h)};
}

float agreement(const CentredBox& a, const CentredBox& b, Agreement kind) {
  const Box at = corners_of(a), to = corners_of(b);
  const float both = covered_by_both(at, to), either = a.w * a.h + b.w * b.h - both,
              iou = both / either;
  if (kind == Agreement::kIou) return iou;
  const Sides around = sides_around(at, to);
  if (kind == Agreement::kGiou) {
    const float area = around.w * around.h;
    return area == 0 ? iou : iou - (area - either) / area;
  }
  const float diagonal = square(around.w) + square(around.h);
  if (diagonal == 0) return iou;
  const float distance = (square(a.x - b.x) + square(a.y - b.y)) / diagonal;
  if (kind == Agreement::kDiou) return iou - std::pow(distance, 0.6f);
  const float aspects = aspect_difference(a, b);
  return iou - (distance + aspect_weight(aspects, iou) * aspects);
}

CentredBox agreement_slope(const CentredBox& a, const CentredBox& b, Agreement kind) {
  const Box at = corners_of(a), to = corners_of(b);
  const Edges edges = edge_slope(at, to, kind);
  CentredBox slope{edges.left + edges.right, edges.top + edges.bottom, edges.right - edges.left,
                   edges.bottom - edges.top};
  if (kind == Agreement::kIou || kind == Agreement::kGiou) return slope;
  CentredBox more = distance_slope(a, b);
  const Overlap overlap(at, to);
  if (kind == Agreement::kCiou) {
    constexpr float kPi = std::numbers::pi_v<float>;
    const float weight = aspect_weight(aspect_difference(a, b), overlap.both / overlap.either),
                turn = 8 / (kPi * kPi) * (std::atan(b.w / b.h) - std::atan(a.w / a.h));
    more.w += weight * turn * a.h;
    more.h -= weight * turn * a.w;
  }
  if (overlap.is_apart()) return more;
  return {slope.x + more.x, slope.y + more.y, slope.w + more.w, slope.h + more.h};
}

}  // namespace shoal
