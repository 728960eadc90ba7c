#include "shoal/ops/rois.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/roi_bins.h"

namespace shoal::ops::cpu {
namespace {

using Pool = RoiDesc::Pool;

bool samples(const RoiDesc& desc) {
  return desc.pool == Pool::kAligned || desc.pool == Pool::kCorners;
}

// The bins of one roi: the places of each row and column of bins, or their points.
struct RoiBins {
  RoiBins(const RoiDesc& desc, const float* roi) : image(static_cast<std::int64_t>(roi[0])) {
    fill(rows_of(desc), roi[2], roi[4], rows, row_points, points_h);
    fill(columns_of(desc), roi[1], roi[3], columns, column_points, points_w);
  }
  static void fill(const RoiAxis& axis, float low, float high, std::vector<BinSpan>& spans,
                   std::vector<RoiPoint>& points, std::int64_t& each) {
    const bool sampled = axis.pool == Pool::kAligned || axis.pool == Pool::kCorners;
    each = sampled ? points_of(axis, low, high) : 0;
    for (std::int64_t p = 0; p < axis.bins; ++p) {
      if (!sampled) spans.push_back(bin_span(axis, low, high, p));
      for (std::int64_t i = 0; i < each; ++i)
        points.push_back(roi_point(axis, low, high, p, i, each));
    }
  }
  std::int64_t image, points_h = 0, points_w = 0;
  std::vector<BinSpan> rows, columns;
  std::vector<RoiPoint> row_points, column_points;
};

void check_rois(const RoiDesc& desc, const Tensor& features, const Tensor& rois,
                const Tensor& pooled) {
  CHECK(features.count() == desc.images * desc.channels * desc.height * desc.width &&
        rois.count() == 5 * desc.rois &&
        pooled.count() == desc.rois * desc.pooled_channels() * desc.bins_h * desc.bins_w)
      << features.shape().str() << ", " << rois.shape().str() << ", " << pooled.shape().str();
}

// Calls f(bins, p, q, bin in the plane of bins) for each bin of a roi.
template <class F>
void each_bin(const RoiDesc& desc, F f) {
  for (std::int64_t p = 0; p < desc.bins_h; ++p)
    for (std::int64_t q = 0; q < desc.bins_w; ++q) f(p, q, p * desc.bins_w + q);
}

float largest(const RoiBins& bins, std::int64_t p, std::int64_t q, std::int64_t width,
              const float* plane, float& winner) {
  const BinSpan rows = bins.rows[static_cast<std::size_t>(p)],
                columns = bins.columns[static_cast<std::size_t>(q)];
  winner = -1;
  if (rows.end <= rows.begin || columns.end <= columns.begin) return 0;
  std::int64_t best = rows.begin * width + columns.begin;
  for (std::int64_t h = rows.begin; h < rows.end; ++h)
    for (std::int64_t w = columns.begin; w < columns.end; ++w)
      if (plane[h * width + w] > plane[best]) best = h * width + w;
  winner = static_cast<float>(best);
  return plane[best];
}

float mean(const RoiBins& bins, std::int64_t p, std::int64_t q, std::int64_t width,
           const float* plane) {
  const BinSpan rows = bins.rows[static_cast<std::size_t>(p)],
                columns = bins.columns[static_cast<std::size_t>(q)];
  const std::int64_t count = (rows.end - rows.begin) * (columns.end - columns.begin);
  if (rows.end <= rows.begin || columns.end <= columns.begin) return 0;
  float sum = 0;
  for (std::int64_t h = rows.begin; h < rows.end; ++h)
    for (std::int64_t w = columns.begin; w < columns.end; ++w) sum += plane[h * width + w];
  return sum / static_cast<float>(count);
}

// Calls f(row, column) for each pair of points of a bin.
template <class F>
void each_point(const RoiBins& bins, std::int64_t p, std::int64_t q, F f) {
  for (std::int64_t i = 0; i < bins.points_h; ++i)
    for (std::int64_t j = 0; j < bins.points_w; ++j)
      f(bins.row_points[static_cast<std::size_t>(p * bins.points_h + i)],
        bins.column_points[static_cast<std::size_t>(q * bins.points_w + j)]);
}

float sampled_mean(const RoiBins& bins, std::int64_t p, std::int64_t q, std::int64_t width,
                   const float* plane) {
  float sum = 0;
  each_point(bins, p, q, [&](const RoiPoint& row, const RoiPoint& column) {
    const float *const above = plane + row.low * width, *const below = plane + row.high * width;
    sum += row.of_low * (column.of_low * above[column.low] + column.of_high * above[column.high]) +
           row.of_high * (column.of_low * below[column.low] + column.of_high * below[column.high]);
  });
  return sum / static_cast<float>(bins.points_h * bins.points_w);
}

// Adds the gradient `g` of a bin to its plane of features.
void spread(const RoiDesc& desc, const RoiBins& bins, std::int64_t p, std::int64_t q, float g,
            float winner, float* plane) {
  if (desc.pool == Pool::kMax) {
    if (winner >= 0) plane[static_cast<std::int64_t>(winner)] += g;
    return;
  }
  if (samples(desc)) {
    g /= static_cast<float>(bins.points_h * bins.points_w);
    each_point(bins, p, q, [&](const RoiPoint& row, const RoiPoint& column) {
      float *const above = plane + row.low * desc.width, *const below =
                                                             plane + row.high * desc.width;
      above[column.low] += g * row.of_low * column.of_low;
      above[column.high] += g * row.of_low * column.of_high;
      below[column.low] += g * row.of_high * column.of_low;
      below[column.high] += g * row.of_high * column.of_high;
    });
    return;
  }
  const BinSpan rows = bins.rows[static_cast<std::size_t>(p)],
                columns = bins.columns[static_cast<std::size_t>(q)];
  g /= static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
  for (std::int64_t h = rows.begin; h < rows.end; ++h)
    for (std::int64_t w = columns.begin; w < columns.end; ++w) plane[h * desc.width + w] += g;
}

}  // namespace

void roi_pool(Context& ctx, const RoiDesc& desc, const Tensor& features, const Tensor& rois,
              Tensor& pooled, Tensor& winners) {
  check_rois(desc, features, rois, pooled);
  const bool keeps = desc.pool == Pool::kMax, grouped = desc.pool == Pool::kGrouped;
  const float *const in = features.in(), *const boxes = rois.in();
  float *const out = pooled.out(), *const places = keeps ? winners.out() : nullptr;
  const std::int64_t channels = desc.pooled_channels(), bins = desc.bins_h * desc.bins_w,
                     plane = desc.height * desc.width;
  parallel_for(ctx.threads(), desc.rois, grain_of(8 * channels * bins),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   const RoiBins roi(desc, boxes + 5 * r);
                   for (std::int64_t c = 0; c < channels; ++c)
                     each_bin(desc, [&](std::int64_t p, std::int64_t q, std::int64_t bin) {
                       const std::int64_t from = grouped ? c * bins + bin : c,
                                          to = (r * channels + c) * bins + bin;
                       const float* const x = in + (roi.image * desc.channels + from) * plane;
                       if (keeps)
                         out[to] = largest(roi, p, q, desc.width, x, places[to]);
                       else if (grouped)
                         out[to] = mean(roi, p, q, desc.width, x);
                       else
                         out[to] = sampled_mean(roi, p, q, desc.width, x);
                     });
                 }
               });
}

void roi_pool_backward(Context& ctx, const RoiDesc& desc, const Tensor& dpooled, const Tensor& rois,
                       const Tensor& winners, Tensor& dfeatures) {
  check_rois(desc, dfeatures, rois, dpooled);
  const bool keeps = desc.pool == Pool::kMax, grouped = desc.pool == Pool::kGrouped;
  const float *const grads = dpooled.in(), *const boxes = rois.in(),
                     *const places = keeps ? winners.in() : nullptr;
  float* const out = dfeatures.out();
  std::fill(out, out + dfeatures.count(), 0.0f);
  const std::int64_t channels = desc.pooled_channels(), bins = desc.bins_h * desc.bins_w,
                     plane = desc.height * desc.width;
  // Threads share out the channels: two rois may cover the same places.
  parallel_for(ctx.threads(), channels, grain_of(8 * desc.rois * bins),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = 0; r < desc.rois; ++r) {
                   const RoiBins roi(desc, boxes + 5 * r);
                   for (std::int64_t c = begin; c < end; ++c)
                     each_bin(desc, [&](std::int64_t p, std::int64_t q, std::int64_t bin) {
                       const std::int64_t to = grouped ? c * bins + bin : c,
                                          from = (r * channels + c) * bins + bin;
                       spread(desc, roi, p, q, grads[from], keeps ? places[from] : 0.0f,
                              out + (roi.image * desc.channels + to) * plane);
                     });
                 }
               });
}

}  // namespace shoal::ops::cpu
