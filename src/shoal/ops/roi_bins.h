// The places of a box's bins along one axis, for the CPU and for kernels of a device.
#pragma once

#include <cmath>
#include <cstdint>

#include "shoal/base/on_any_device.h"
#include "shoal/ops/rois.h"

namespace shoal::ops {

// One axis of the features and of the bins.
struct RoiAxis {
  RoiDesc::Pool pool;
  std::int64_t size, bins;
  float scale, pad;
  int samples;
};
inline RoiAxis rows_of(const RoiDesc& desc) {
  return {desc.pool, desc.height, desc.bins_h, desc.scale, desc.pad, desc.samples};
}
inline RoiAxis columns_of(const RoiDesc& desc) {
  return {desc.pool, desc.width, desc.bins_w, desc.scale, desc.pad, desc.samples};
}

// Places [begin, end) of a bin.
struct BinSpan {
  std::int64_t begin, end;
};

SHOAL_ON_ANY_DEVICE inline std::int64_t place_within(float at, std::int64_t size) {
  if (!(at > 0)) return 0;
  return at < static_cast<float>(size) ? static_cast<std::int64_t>(at) : size;
}

// Returns the places of bin `p` of a box from `low` to `high`: kMax and kGrouped.
SHOAL_ON_ANY_DEVICE inline BinSpan bin_span(const RoiAxis& axis, float low, float high,
                                            std::int64_t p) {
  const auto bins = static_cast<float>(axis.bins), first = static_cast<float>(p);
  if (axis.pool == RoiDesc::Pool::kMax) {
    const float pad = (high - low + 1) * axis.pad;
    const float start = std::round((low - pad) * axis.scale),
                length = std::round((high + pad) * axis.scale) - start + 1,
                bin = (length < 1 ? 1.0f : length) / bins;
    return {place_within(std::floor(first * bin) + start, axis.size),
            place_within(std::ceil((first + 1) * bin) + start, axis.size)};
  }
  const float start = std::round(low) * axis.scale,
              length = (std::round(high) + 1) * axis.scale - start,
              bin = (length < 0.1f ? 0.1f : length) / bins;
  // In double, so that it is the same with and without fused products.
  const auto at = [start, bin](float edge) {
    return static_cast<float>(static_cast<double>(edge) * static_cast<double>(bin) +
                              static_cast<double>(start));
  };
  return {place_within(std::floor(at(first)), axis.size),
          place_within(std::ceil(at(first + 1)), axis.size)};
}

// A point between two places, and how much each of them counts.
struct RoiPoint {
  std::int64_t low, high;
  float of_low, of_high;
  SHOAL_ON_ANY_DEVICE float weight(std::int64_t place) const {
    return (place == low ? of_low : 0.0f) + (place == high ? of_high : 0.0f);
  }
};

// Returns how many points along the axis a bin has.
SHOAL_ON_ANY_DEVICE inline std::int64_t points_of(const RoiAxis& axis, float low, float high) {
  if (axis.pool == RoiDesc::Pool::kCorners) return 1;
  if (axis.samples > 0) return axis.samples;
  const float length = (high - low) * axis.scale;
  return static_cast<std::int64_t>(
      std::ceil((length < 1 ? 1.0f : length) / static_cast<float>(axis.bins)));
}

// Returns point `i` of the `points` of bin `p`: kAligned and kCorners. A point outside the features
// counts nothing.
SHOAL_ON_ANY_DEVICE inline RoiPoint roi_point(const RoiAxis& axis, float low, float high,
                                              std::int64_t p, std::int64_t i, std::int64_t points) {
  const auto size = static_cast<float>(axis.size);
  const bool corners = axis.pool == RoiDesc::Pool::kCorners;
  const float pad = corners ? (high - low + 1) * axis.pad : 0.0f;
  const float start = (low - pad) * axis.scale - (corners ? 0.5f : 0.0f);
  float length = (high + pad) * axis.scale - (corners ? 0.5f : 0.0f) - start, at = 0;
  if (corners) {
    if (!(length > 0)) return {0, 0, 0, 0};
    at = start + static_cast<float>(p) * (length / static_cast<float>(axis.bins - 1));
    if (at < -0.5f || at > size - 0.5f) return {0, 0, 0, 0};
  } else {
    length = length < 1 ? 1.0f : length;
    const float bin = length / static_cast<float>(axis.bins);
    at = start + static_cast<float>(p) * bin +
         (static_cast<float>(i) + 0.5f) * bin / static_cast<float>(points);
    if (at < -1 || at > size) return {0, 0, 0, 0};
  }
  at = at < 0 ? 0.0f : (at > size - 1 ? size - 1 : at);
  const auto place = static_cast<std::int64_t>(at);
  const float beyond = at - static_cast<float>(place);
  return {place, place + 1 < axis.size ? place + 1 : place, 1 - beyond, beyond};
}

// Returns the sum of what the points of bin `p` give to a place.
SHOAL_ON_ANY_DEVICE inline float bin_weight(const RoiAxis& axis, float low, float high,
                                            std::int64_t p, std::int64_t points,
                                            std::int64_t place) {
  float sum = 0;
  for (std::int64_t i = 0; i < points; ++i)
    sum += roi_point(axis, low, high, p, i, points).weight(place);
  return sum;
}

}  // namespace shoal::ops
