// Whole tensors as vectors, on a CUDA device.
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {
namespace {

void check_counts(const Tensor& x, const Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
}

}  // namespace

void fill(Context& ctx, float value, Tensor& y) {
  float* const out = write(ctx, y);
  each(ctx, "fill", y.count(), [=] __host__ __device__(std::int64_t i) { out[i] = value; });
}

void copy(Context& ctx, const Tensor& x, Tensor& y) {
  check_counts(x, y);
  const float* const in = read(ctx, x);
  float* const out = write(ctx, y);
  if (in != out)
    each(ctx, "copy", y.count(), [=] __host__ __device__(std::int64_t i) { out[i] = in[i]; });
}

void scale(Context& ctx, float a, Tensor& y) {
  float* const out = mut(ctx, y);
  each(ctx, "scale", y.count(), [=] __host__ __device__(std::int64_t i) { out[i] *= a; });
}

void axpy(Context& ctx, float a, const Tensor& x, Tensor& y) {
  check_counts(x, y);
  const float* const in = read(ctx, x);
  float* const out = mut(ctx, y);
  each(ctx, "axpy", y.count(), [=] __host__ __device__(std::int64_t i) { out[i] += a * in[i]; });
}

void add(Context& ctx, const Tensor& x, const Tensor& z, Tensor& y) {
  check_counts(x, y);
  check_counts(z, y);
  const float *const left = read(ctx, x), *const right = read(ctx, z);
  float* const out = mut(ctx, y);
  each(ctx, "add", y.count(),
       [=] __host__ __device__(std::int64_t i) { out[i] = left[i] + right[i]; });
}

}  // namespace shoal::ops::cuda
