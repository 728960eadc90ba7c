#include "shoal/layers/box_codes.h"

#include <cmath>

#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

Box box_at(std::span<const float> numbers, std::size_t i) {
  return {numbers[4 * i], numbers[4 * i + 1], numbers[4 * i + 2], numbers[4 * i + 3]};
}

float width(const Box& box) { return box.xmax - box.xmin; }
float height(const Box& box) { return box.ymax - box.ymin; }
float middle(float low, float high) { return (low + high) / 2; }

// Returns the lengths in which a code counts.
FourNumbers units(const Box& prior, const FourNumbers& variance, const BoxCode& code) {
  FourNumbers unit{1, 1, 1, 1};
  if (code.kind == BoxCode::Kind::kCornerSize)
    unit = {width(prior), height(prior), width(prior), height(prior)};
  if (!code.plain)
    for (std::size_t k = 0; k < 4; ++k) unit[k] *= variance[k];
  return unit;
}

Box around(float x, float y, float w, float h) {
  return {x - w / 2, y - h / 2, x + w / 2, y + h / 2};
}

}  // namespace

Priors read_priors(std::span<const float> numbers) {
  const std::size_t count = numbers.size() / 8;
  Priors priors;
  for (std::size_t i = 0; i < count; ++i) {
    const Box variance = box_at(numbers.subspan(4 * count), i);
    priors.boxes.push_back(box_at(numbers, i));
    priors.variances.push_back({variance.xmin, variance.ymin, variance.xmax, variance.ymax});
  }
  return priors;
}

BoxCode box_code(int code_type, bool plain) {
  BoxCode code{.plain = plain};
  if (code_type == PriorBoxParameter::CENTER_SIZE) code.kind = BoxCode::Kind::kCenterSize;
  if (code_type == PriorBoxParameter::CORNER_SIZE) code.kind = BoxCode::Kind::kCornerSize;
  return code;
}

Box decode(const Box& prior, const FourNumbers& variance, const BoxCode& code,
           std::span<const float, 4> numbers) {
  if (code.kind != BoxCode::Kind::kCenterSize) {
    const FourNumbers unit = units(prior, variance, code);
    return {prior.xmin + unit[0] * numbers[0], prior.ymin + unit[1] * numbers[1],
            prior.xmax + unit[2] * numbers[2], prior.ymax + unit[3] * numbers[3]};
  }
  const FourNumbers v = code.plain ? FourNumbers{1, 1, 1, 1} : variance;
  return around(v[0] * numbers[0] * width(prior) + middle(prior.xmin, prior.xmax),
                v[1] * numbers[1] * height(prior) + middle(prior.ymin, prior.ymax),
                std::exp(v[2] * numbers[2]) * width(prior),
                std::exp(v[3] * numbers[3]) * height(prior));
}

FourNumbers encode(const Box& prior, const FourNumbers& variance, const BoxCode& code,
                   const Box& box) {
  if (code.kind != BoxCode::Kind::kCenterSize) {
    const FourNumbers unit = units(prior, variance, code);
    return {(box.xmin - prior.xmin) / unit[0], (box.ymin - prior.ymin) / unit[1],
            (box.xmax - prior.xmax) / unit[2], (box.ymax - prior.ymax) / unit[3]};
  }
  const FourNumbers v = code.plain ? FourNumbers{1, 1, 1, 1} : variance;
  const float dx = middle(box.xmin, box.xmax) - middle(prior.xmin, prior.xmax);
  const float dy = middle(box.ymin, box.ymax) - middle(prior.ymin, prior.ymax);
  return {dx / width(prior) / v[0], dy / height(prior) / v[1],
          std::log(width(box) / width(prior)) / v[2], std::log(height(box) / height(prior)) / v[3]};
}

bool can_encode(const Box& prior, const BoxCode& code, const Box& box) {
  if (code.kind == BoxCode::Kind::kCorner) return true;
  if (!(width(prior) > 0 && height(prior) > 0)) return false;
  return code.kind == BoxCode::Kind::kCornerSize || (width(box) > 0 && height(box) > 0);
}

}  // namespace shoal
