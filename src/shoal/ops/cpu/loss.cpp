#include "shoal/ops/loss.h"

#include <cmath>
#include <limits>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/elementwise.h"
#include "shoal/ops/cpu/vector_math.h"

namespace shoal::ops::cpu {
namespace {

void check_counts(const Tensor& a, const Tensor& b) {
  CHECK(a.count() == b.count()) << "shapes " << a.shape().str() << " and " << b.shape().str();
}

float or_nan(std::optional<int> ignore) {
  return ignore ? static_cast<float>(*ignore) : std::numeric_limits<float>::quiet_NaN();
}

double squared_distance_of_rows(const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double d = double{a[i]} - b[i];
    sum += d * d;
  }
  return sum;
}

// Returns the factor of a - b in contrastive_loss_backward.
double contrastive_factor(const ContrastiveDesc& desc, bool alike, double squared) {
  if (alike) return 1;
  if (desc.legacy) return desc.margin - squared > 0 ? -1 : 0;
  const double d = std::sqrt(squared), missing = desc.margin - d;
  return missing > 0 ? -missing / (d + 1e-4) : 0;
}

}  // namespace

void sigmoid_cross_entropy(Context& ctx, const Tensor& x, const Tensor& targets,
                           std::optional<int> ignore, double divisor, Tensor& loss) {
  check_counts(x, targets);
  const float *in = x.in(), *target = targets.in();
  const float skip = or_nan(ignore);
  put_loss(ctx, x.count(), divisor, loss, [=](std::int64_t i) {
    const float v = in[i], t = target[i];
    if (std::trunc(t) == skip) return 0.0;
    return double{v > 0 ? v - v * t : -v * t} + fast_log1p(fast_exp(v > 0 ? -v : v));
  });
}

void sigmoid_cross_entropy_backward(Context& ctx, const Tensor& x, const Tensor& targets,
                                    std::optional<int> ignore, float scale, Tensor& dx) {
  check_counts(x, targets);
  check_counts(x, dx);
  const float *in = x.in(), *target = targets.in();
  const float skip = or_nan(ignore);
  float* out = dx.out();
  for_elements(ctx, x.count(), [=](std::int64_t i) {
    const float t = target[i];
    out[i] = std::trunc(t) == skip ? 0.0f : scale * (fast_sigmoid(in[i]) - t);
  });
}

std::int64_t count_targets(Context& ctx, const Tensor& targets, std::optional<int> ignore) {
  const float* target = targets.in();
  const float skip = or_nan(ignore);
  return static_cast<std::int64_t>(blocked_sum(ctx, targets.count(), [=](std::int64_t i) {
    return std::trunc(target[i]) == skip ? 0.0 : 1.0;
  }));
}

void squared_distance(Context& ctx, const Tensor& a, const Tensor& b, double divisor,
                      Tensor& loss) {
  check_counts(a, b);
  const float *left = a.in(), *right = b.in();
  put_loss(ctx, a.count(), divisor, loss, [=](std::int64_t i) {
    const double d = double{left[i]} - right[i];
    return d * d;
  });
}

void difference(Context& ctx, float scale, const Tensor& a, const Tensor& b, Tensor& y) {
  check_counts(a, b);
  check_counts(a, y);
  const float *left = a.in(), *right = b.in();
  float* out = y.out();
  for_elements(ctx, y.count(), [=](std::int64_t i) { out[i] = scale * (left[i] - right[i]); });
}

void contrastive_loss(Context& ctx, const ContrastiveDesc& desc, const Tensor& a, const Tensor& b,
                      const Tensor& similar, double divisor, Tensor& loss) {
  check_counts(a, b);
  CHECK(a.count() == desc.rows * desc.columns && similar.count() == desc.rows)
      << a.shape().str() << ", " << similar.shape().str();
  const float *left = a.in(), *right = b.in(), *alike = similar.in();
  put_loss(ctx, desc.rows, divisor, loss, [=](std::int64_t n) {
    const double squared =
        squared_distance_of_rows(left + n * desc.columns, right + n * desc.columns, desc.columns);
    if (std::trunc(alike[n]) != 0) return squared;
    const double missing = desc.margin - (desc.legacy ? squared : std::sqrt(squared));
    if (missing < 0) return 0.0;
    return desc.legacy ? missing : missing * missing;
  });
}

void contrastive_loss_backward(Context& ctx, const ContrastiveDesc& desc, const Tensor& a,
                               const Tensor& b, const Tensor& similar, float scale, Tensor& da) {
  check_counts(a, b);
  check_counts(a, da);
  CHECK(a.count() == desc.rows * desc.columns && similar.count() == desc.rows)
      << a.shape().str() << ", " << similar.shape().str();
  const float *left = a.in(), *right = b.in(), *alike = similar.in();
  float* out = da.out();
  const std::int64_t columns = desc.columns;
  parallel_for(ctx.threads(), desc.rows, grain_of(columns),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t n = begin; n < end; ++n) {
                   const double squared =
                       squared_distance_of_rows(left + n * columns, right + n * columns, columns);
                   const float factor = scale * static_cast<float>(contrastive_factor(
                                                    desc, std::trunc(alike[n]) != 0, squared));
                   for (std::int64_t i = n * columns; i < (n + 1) * columns; ++i)
                     out[i] = factor * (left[i] - right[i]);
                 }
               });
}

}  // namespace shoal::ops::cpu
