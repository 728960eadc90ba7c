// Losses of numbers and of pairs of rows, on a CUDA device.
#include "shoal/ops/loss.h"

#include <cmath>
#include <limits>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {
namespace {

void check_counts(const Tensor& a, const Tensor& b) {
  CHECK(a.count() == b.count()) << "shapes " << a.shape().str() << " and " << b.shape().str();
}

float or_nan(std::optional<int> ignore) {
  return ignore ? static_cast<float>(*ignore) : std::numeric_limits<float>::quiet_NaN();
}

// Calls put(row, (a - b)^2 summed over the row) for each row.
template <class Put>
void each_distance(Context& ctx, const ContrastiveDesc& desc, const Tensor& a, const Tensor& b,
                   const Tensor& similar, Put put) {
  check_counts(a, b);
  CHECK(a.count() == desc.rows * desc.columns && similar.count() == desc.rows)
      << a.shape().str() << ", " << similar.shape().str();
  const std::int64_t columns = desc.columns;
  const float *const left = read(ctx, a), *const right = read(ctx, b);
  reduce<double>(
      ctx, "distances of rows", desc.rows, columns,
      [=] __host__ __device__(std::int64_t row, std::int64_t c) {
        const double d = double{left[row * columns + c]} - right[row * columns + c];
        return d * d;
      },
      Add(), put);
}

// A row's part of contrastive_loss, and the factor of a - b in its gradient.
__host__ __device__ inline double contrastive_part(const ContrastiveDesc& desc, bool alike,
                                                   double squared) {
  if (alike) return squared;
  const double missing = desc.margin - (desc.legacy ? squared : std::sqrt(squared));
  if (missing < 0) return 0;
  return desc.legacy ? missing : missing * missing;
}
__host__ __device__ inline double contrastive_factor(const ContrastiveDesc& desc, bool alike,
                                                     double squared) {
  if (alike) return 1;
  if (desc.legacy) return desc.margin - squared > 0 ? -1 : 0;
  const double d = std::sqrt(squared), missing = desc.margin - d;
  return missing > 0 ? -missing / (d + 1e-4) : 0;
}

}  // namespace

void sigmoid_cross_entropy(Context& ctx, const Tensor& x, const Tensor& targets,
                           std::optional<int> ignore, double divisor, Tensor& loss) {
  check_counts(x, targets);
  const float *const in = read(ctx, x), *const target = read(ctx, targets);
  const float skip = or_nan(ignore);
  float* const out = write(ctx, loss);
  sum(
      ctx, "sigmoid cross entropy", x.count(),
      [=] __host__ __device__(std::int64_t i) {
        const float v = in[i], t = target[i];
        if (std::trunc(t) == skip) return 0.0;
        return double{v > 0 ? v - v * t : -v * t} + std::log1p(std::exp(v > 0 ? -v : v));
      },
      [=] __host__ __device__(double total) { out[0] = static_cast<float>(total / divisor); });
}

void sigmoid_cross_entropy_backward(Context& ctx, const Tensor& x, const Tensor& targets,
                                    std::optional<int> ignore, float scale, Tensor& dx) {
  check_counts(x, targets);
  check_counts(x, dx);
  const float *const in = read(ctx, x), *const target = read(ctx, targets);
  const float skip = or_nan(ignore);
  float* const out = write(ctx, dx);
  each(ctx, "sigmoid cross entropy's gradient", x.count(), [=] __host__ __device__(std::int64_t i) {
    const float t = target[i];
    const float s = 1.0f / (1.0f + std::exp(-in[i]));
    out[i] = std::trunc(t) == skip ? 0.0f : scale * (s - t);
  });
}

std::int64_t count_targets(Context& ctx, const Tensor& targets, std::optional<int> ignore) {
  return cpu_backend().elementary->count_targets(ctx, targets, ignore);
}

void squared_distance(Context& ctx, const Tensor& a, const Tensor& b, double divisor,
                      Tensor& loss) {
  check_counts(a, b);
  const float *const left = read(ctx, a), *const right = read(ctx, b);
  float* const out = write(ctx, loss);
  sum(
      ctx, "squared distance", a.count(),
      [=] __host__ __device__(std::int64_t i) {
        const double d = double{left[i]} - right[i];
        return d * d;
      },
      [=] __host__ __device__(double total) { out[0] = static_cast<float>(total / divisor); });
}

void difference(Context& ctx, float scale, const Tensor& a, const Tensor& b, Tensor& y) {
  check_counts(a, b);
  check_counts(a, y);
  const float *const left = read(ctx, a), *const right = read(ctx, b);
  float* const out = write(ctx, y);
  each(ctx, "difference", y.count(),
       [=] __host__ __device__(std::int64_t i) { out[i] = scale * (left[i] - right[i]); });
}

void contrastive_loss(Context& ctx, const ContrastiveDesc& desc, const Tensor& a, const Tensor& b,
                      const Tensor& similar, double divisor, Tensor& loss) {
  const float* const alike = read(ctx, similar);
  float* const out = write(ctx, loss);
  double* const parts = reinterpret_cast<double*>(ctx.scratch(2 * desc.rows).data());
  each_distance(ctx, desc, a, b, similar,
                [=] __host__ __device__(std::int64_t row, double squared) {
                  parts[row] = contrastive_part(desc, std::trunc(alike[row]) != 0, squared);
                });
  reduce<double>(
      ctx, "contrastive loss", 1, desc.rows,
      [=] __host__ __device__(std::int64_t, std::int64_t row) { return parts[row]; }, Add(),
      [=] __host__ __device__(std::int64_t, double total) {
        out[0] = static_cast<float>(total / divisor);
      });
}

void contrastive_loss_backward(Context& ctx, const ContrastiveDesc& desc, const Tensor& a,
                               const Tensor& b, const Tensor& similar, float scale, Tensor& da) {
  check_counts(a, da);
  const float* const alike = read(ctx, similar);
  float* const factors = ctx.scratch(desc.rows).data();
  each_distance(
      ctx, desc, a, b, similar, [=] __host__ __device__(std::int64_t row, double squared) {
        factors[row] = scale * static_cast<float>(
                                   contrastive_factor(desc, std::trunc(alike[row]) != 0, squared));
      });
  const Divisor columns(desc.columns);
  const float *const left = read(ctx, a), *const right = read(ctx, b);
  float* const out = write(ctx, da);
  each(ctx, "contrastive loss's gradient", da.count(), [=] __host__ __device__(std::int64_t i) {
    out[i] = factors[i / columns] * (left[i] - right[i]);
  });
}

}  // namespace shoal::ops::cuda
