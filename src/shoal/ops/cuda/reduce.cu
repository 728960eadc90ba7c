// Rows made into one number each, on a CUDA device.
#include "shoal/ops/reduce.h"

#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {
namespace {

std::int64_t row_length(const Tensor& whole, std::int64_t rows) {
  CHECK(rows == 0 ? whole.count() == 0 : whole.count() % rows == 0)
      << whole.shape().str() << " in " << rows << " rows";
  return rows == 0 ? 0 : whole.count() / rows;
}

__host__ __device__ inline double term_of(Reduce kind, double v) {
  if (kind == Reduce::kSum) return v;
  return kind == Reduce::kAbsSum ? std::fabs(v) : v * v;
}

__host__ __device__ inline float slope_of(Reduce kind, float v) {
  return kind == Reduce::kAbsSum ? static_cast<float>((v > 0) - (v < 0)) : 2 * v;
}

// The mean and the deviation (biased) of each row; either may be null.
void measure_rows(Context& ctx, std::int64_t rows, std::int64_t length, const float* x, float* mean,
                  float* deviation) {
  reduce<TwoSums>(
      ctx, "rows' means", rows, length,
      [=] __host__ __device__(std::int64_t row, std::int64_t c) {
        const double v = x[row * length + c] - x[row * length];
        return TwoSums{v, v * v};
      },
      Add(),
      [=] __host__ __device__(std::int64_t row, TwoSums sums) {
        const auto n = static_cast<double>(length);
        const double offset = sums.first / n, spread = sums.second / n - offset * offset;
        mean[row] = static_cast<float>(x[row * length] + offset);
        if (deviation != nullptr)
          deviation[row] = static_cast<float>(std::sqrt(spread < 0 ? 0.0 : spread));
      });
}

}  // namespace

void reduce_rows(Context& ctx, Reduce kind, float coeff, const Tensor& x, Tensor& y) {
  const std::int64_t rows = y.count(), length = row_length(x, rows);
  const float* const in = read(ctx, x);
  float* const out = write(ctx, y);
  sum_rows<double>(
      ctx, "sums of rows", rows, length,
      [=] __host__ __device__(std::int64_t row, std::int64_t c) {
        return term_of(kind, in[row * length + c]);
      },
      [=] __host__ __device__(std::int64_t row, double sum) {
        out[row] = static_cast<float>(coeff * sum);
      });
}

void reduce_rows_backward(Context& ctx, Reduce kind, float coeff, const Tensor& g, const Tensor& x,
                          Tensor& gx) {
  const Divisor length(row_length(gx, g.count()));
  const float* const grad = read(ctx, g);
  if (kind == Reduce::kSum) {
    float* const out = write(ctx, gx);
    each(ctx, "gradient of sums", gx.count(),
         [=] __host__ __device__(std::int64_t i) { out[i] = coeff * grad[i / length]; });
    return;
  }
  CHECK(x.count() == gx.count());
  const float* const in = read(ctx, x);
  float* const out = write(ctx, gx);
  each(ctx, "gradient of sums", gx.count(), [=] __host__ __device__(std::int64_t i) {
    out[i] = coeff * grad[i / length] * slope_of(kind, in[i]);
  });
}

void standardize_rows(Context& ctx, std::int64_t rows, float eps, const Tensor& x, Tensor& y,
                      Tensor& divisor) {
  CHECK(x.count() == y.count() && (divisor.count() == 0 || divisor.count() == rows));
  const std::int64_t length = row_length(x, rows);
  if (x.count() == 0) return;
  const Divisor by(length);
  const float* const in = read(ctx, x);
  float* const deviation = divisor.count() > 0 ? write(ctx, divisor) : nullptr;
  float* const mean = ctx.scratch(rows).data();
  measure_rows(ctx, rows, length, in, mean, deviation);
  if (deviation != nullptr)
    each(ctx, "rows' divisors", rows,
         [=] __host__ __device__(std::int64_t row) { deviation[row] = eps + deviation[row]; });
  float* const out = write(ctx, y);
  each(ctx, "standard rows", y.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t row = i / by;
    const float factor = deviation != nullptr ? 1 / deviation[row] : 1.0f;
    out[i] = (in[i] - mean[row]) * factor;
  });
}

void standardize_rows_backward(Context& ctx, std::int64_t rows, const Tensor& g, const Tensor& y,
                               const Tensor& divisor, Tensor& gx) {
  CHECK(g.count() == gx.count() &&
        (divisor.count() == 0 || (divisor.count() == rows && y.count() == g.count())));
  const std::int64_t length = row_length(g, rows);
  if (g.count() == 0) return;
  const bool divided = divisor.count() > 0;
  const Divisor by(length);
  const float* const grad = read(ctx, g);
  const float *const out = divided ? read(ctx, y) : grad, *const divisors = divided
                                                                                ? read(ctx, divisor)
                                                                                : nullptr;
  float *const mean = ctx.scratch(2 * rows).data(), *const along = mean + rows;
  reduce<TwoSums>(
      ctx, "rows' means", rows, length,
      [=] __host__ __device__(std::int64_t row, std::int64_t c) {
        const std::int64_t i = row * length + c;
        return TwoSums{grad[i], double{grad[i]} * out[i]};
      },
      Add(),
      [=] __host__ __device__(std::int64_t row, TwoSums sums) {
        mean[row] = static_cast<float>(sums.first / static_cast<double>(length));
        along[row] = divided ? static_cast<float>(sums.second / static_cast<double>(length)) : 0.0f;
      });
  float* const to = write(ctx, gx);
  each(ctx, "standard rows' gradient", gx.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t row = i / by;
    const float factor = divided ? 1 / divisors[row] : 1.0f;
    to[i] = (grad[i] - mean[row] - along[row] * out[i]) * factor;
  });
}

}  // namespace shoal::ops::cuda
