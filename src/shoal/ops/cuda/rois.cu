// Features of boxes pooled into bins, on a CUDA device. A number of a gradient is gathered from the
// rois, in their order, so that it has the same bits each time.
#include "shoal/ops/rois.h"

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"
#include "shoal/ops/roi_bins.h"

namespace shoal::ops::cuda {
namespace {

using Pool = RoiDesc::Pool;

void check_rois(const RoiDesc& desc, const Tensor& features, const Tensor& rois,
                const Tensor& pooled) {
  CHECK(features.count() == desc.images * desc.channels * desc.height * desc.width &&
        rois.count() == 5 * desc.rois &&
        pooled.count() == desc.rois * desc.pooled_channels() * desc.bins_h * desc.bins_w)
      << features.shape().str() << ", " << rois.shape().str() << ", " << pooled.shape().str();
}

// A description as kernels take it.
struct Rois {
  explicit Rois(const RoiDesc& desc)
      : rows(rows_of(desc)),
        columns(columns_of(desc)),
        pool(desc.pool),
        rois(desc.rois),
        feature_channels(desc.channels),
        pooled_channels(desc.pooled_channels()),
        bins(desc.bins_h * desc.bins_w) {}
  RoiAxis rows, columns;
  Pool pool;
  std::int64_t rois, feature_channels, pooled_channels, bins;

  __host__ __device__ std::int64_t plane() const { return rows.size * columns.size; }
  __host__ __device__ std::int64_t pooled(std::int64_t r, std::int64_t c, std::int64_t p,
                                          std::int64_t q) const {
    return (r * pooled_channels + c) * bins + p * columns.bins + q;
  }
};

__host__ __device__ inline bool is_empty(BinSpan span) { return span.end <= span.begin; }

// The number of a bin, and for kMax its place.
__host__ __device__ inline float pool_spans(const Rois& desc, const float* roi, const float* x,
                                            std::int64_t p, std::int64_t q, float* winner) {
  const BinSpan rows = bin_span(desc.rows, roi[2], roi[4], p),
                columns = bin_span(desc.columns, roi[1], roi[3], q);
  const std::int64_t width = desc.columns.size;
  const bool max = desc.pool == Pool::kMax;
  if (max) *winner = -1;
  if (is_empty(rows) || is_empty(columns)) return 0;
  std::int64_t best = rows.begin * width + columns.begin;
  float sum = 0;
  for (std::int64_t h = rows.begin; h < rows.end; ++h)
    for (std::int64_t w = columns.begin; w < columns.end; ++w) {
      const std::int64_t at = h * width + w;
      sum += x[at];
      if (x[at] > x[best]) best = at;
    }
  if (max) *winner = static_cast<float>(best);
  if (max) return x[best];
  return sum / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
}

__host__ __device__ inline float pool_points(const Rois& desc, const float* roi, const float* x,
                                             std::int64_t p, std::int64_t q) {
  const std::int64_t points_h = points_of(desc.rows, roi[2], roi[4]),
                     points_w = points_of(desc.columns, roi[1], roi[3]), width = desc.columns.size;
  float sum = 0;
  for (std::int64_t i = 0; i < points_h; ++i) {
    const RoiPoint row = roi_point(desc.rows, roi[2], roi[4], p, i, points_h);
    const float *const above = x + row.low * width, *const below = x + row.high * width;
    for (std::int64_t j = 0; j < points_w; ++j) {
      const RoiPoint column = roi_point(desc.columns, roi[1], roi[3], q, j, points_w);
      sum +=
          row.of_low * (column.of_low * above[column.low] + column.of_high * above[column.high]) +
          row.of_high * (column.of_low * below[column.low] + column.of_high * below[column.high]);
    }
  }
  return sum / static_cast<float>(points_h * points_w);
}

// Sums what the bins of a roi give to place (h, w) of pooled channel c.
__host__ __device__ inline float gather(const Rois& desc, const float* roi, std::int64_t r,
                                        std::int64_t c, std::int64_t h, std::int64_t w,
                                        const float* g, const float* winners) {
  const bool samples = desc.pool == Pool::kAligned || desc.pool == Pool::kCorners;
  const std::int64_t points_h = samples ? points_of(desc.rows, roi[2], roi[4]) : 1,
                     points_w = samples ? points_of(desc.columns, roi[1], roi[3]) : 1;
  float sum = 0;
  for (std::int64_t p = 0; p < desc.rows.bins; ++p) {
    float of_row = 1;
    BinSpan rows{0, 1};
    if (samples) {
      of_row = bin_weight(desc.rows, roi[2], roi[4], p, points_h, h);
      if (of_row == 0) continue;
    } else {
      rows = bin_span(desc.rows, roi[2], roi[4], p);
      if (h < rows.begin || h >= rows.end) continue;
    }
    for (std::int64_t q = 0; q < desc.columns.bins; ++q) {
      const std::int64_t at = desc.pooled(r, c, p, q);
      if (samples) {
        sum += g[at] * of_row * bin_weight(desc.columns, roi[1], roi[3], q, points_w, w) /
               static_cast<float>(points_h * points_w);
        continue;
      }
      const BinSpan columns = bin_span(desc.columns, roi[1], roi[3], q);
      if (w < columns.begin || w >= columns.end) continue;
      if (winners[at] == static_cast<float>(h * desc.columns.size + w)) sum += g[at];
    }
  }
  return sum;
}

// Returns what bin (p, q) of a roi gives to a place of its own channel.
__host__ __device__ inline float share_of_mean(const Rois& desc, const float* roi, std::int64_t p,
                                               std::int64_t q, std::int64_t h, std::int64_t w,
                                               float g) {
  const BinSpan rows = bin_span(desc.rows, roi[2], roi[4], p),
                columns = bin_span(desc.columns, roi[1], roi[3], q);
  if (h < rows.begin || h >= rows.end || w < columns.begin || w >= columns.end) return 0;
  return g / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
}

}  // namespace

void roi_pool(Context& ctx, const RoiDesc& desc, const Tensor& features, const Tensor& rois,
              Tensor& pooled, Tensor& winners) {
  check_rois(desc, features, rois, pooled);
  const Rois of(desc);
  const bool keeps = desc.pool == Pool::kMax;
  const float *const in = read(ctx, features), *const boxes = read(ctx, rois);
  float *const out = write(ctx, pooled), *const places = keeps ? write(ctx, winners) : nullptr;
  const Divisor by_columns(desc.bins_w), by_rows(desc.bins_h), by_channels(of.pooled_channels);
  each(ctx, "bins of rois", pooled.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t q = i % by_columns, row = i / by_columns, p = row % by_rows,
                       c = row / by_rows % by_channels, r = row / by_rows / by_channels;
    const float* const roi = boxes + 5 * r;
    const std::int64_t bin = p * by_columns.value() + q,
                       from = of.pool == Pool::kGrouped ? c * of.bins + bin : c;
    const float* const x =
        in + (static_cast<std::int64_t>(roi[0]) * of.feature_channels + from) * of.plane();
    const bool samples = of.pool == Pool::kAligned || of.pool == Pool::kCorners;
    out[i] = samples ? pool_points(of, roi, x, p, q)
                     : pool_spans(of, roi, x, p, q, keeps ? places + i : nullptr);
  });
}

void roi_pool_backward(Context& ctx, const RoiDesc& desc, const Tensor& dpooled, const Tensor& rois,
                       const Tensor& winners, Tensor& dfeatures) {
  check_rois(desc, dfeatures, rois, dpooled);
  const Rois of(desc);
  const bool keeps = desc.pool == Pool::kMax, grouped = desc.pool == Pool::kGrouped;
  const float *const grads = read(ctx, dpooled), *const boxes = read(ctx, rois),
                     *const places = keeps ? read(ctx, winners) : nullptr;
  float* const out = write(ctx, dfeatures);
  const Divisor by_width(desc.width), by_height(desc.height), by_channels(desc.channels),
      by_bins(of.bins), by_columns(desc.bins_w);
  each(ctx, "gradient of rois", dfeatures.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t w = i % by_width, row = i / by_width, h = row % by_height,
                       c = row / by_height % by_channels, image = row / by_height / by_channels;
    const std::int64_t bin = c % by_bins, p = bin / by_columns, q = bin % by_columns;
    float sum = 0;
    for (std::int64_t r = 0; r < of.rois; ++r) {
      const float* const roi = boxes + 5 * r;
      if (static_cast<std::int64_t>(roi[0]) != image) continue;
      sum += grouped ? share_of_mean(of, roi, p, q, h, w, grads[of.pooled(r, c / by_bins, p, q)])
                     : gather(of, roi, r, c, h, w, grads, places);
    }
    out[i] = sum;
  });
}

}  // namespace shoal::ops::cuda
