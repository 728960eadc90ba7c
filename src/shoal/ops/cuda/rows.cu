// Rows of a tensor picked by number, on a CUDA device.
#include "shoal/ops/rows.h"

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {
namespace {

std::int64_t row_length(const Tensor& x, const Tensor& index, const Tensor& picked) {
  const std::int64_t length = x.shape().count(1);
  CHECK(picked.count() == index.count() * length)
      << index.count() << " rows of " << x.shape().str() << " to " << picked.shape().str();
  return length;
}

}  // namespace

std::int64_t first_bad_row(Context& ctx, const Tensor& index, std::int64_t rows) {
  return cpu_backend().elementary->first_bad_row(ctx, index, rows);
}

void take_rows(Context& ctx, const Tensor& x, const Tensor& index, Tensor& y) {
  const std::int64_t length = row_length(x, index, y);
  const Divisor by(length);
  const float *const in = read(ctx, x), *const at = read(ctx, index);
  float* const out = write(ctx, y);
  each(ctx, "rows", y.count(), [=] __host__ __device__(std::int64_t i) {
    out[i] = in[static_cast<std::int64_t>(at[i / by]) * length + i % by];
  });
}

void add_rows(Context& ctx, const Tensor& g, const Tensor& index, Tensor& gx) {
  const std::int64_t length = row_length(gx, index, g), count = index.count();
  const Divisor by(length);
  const float *const grad = read(ctx, g), *const at = read(ctx, index);
  float* const out = mut(ctx, gx);
  // The first row of g that goes to a row of gx takes the later ones along.
  each(ctx, "sums of rows", g.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t first = i / by, column = i % by;
    const float to = at[first];
    for (std::int64_t m = 0; m < first; ++m)
      if (at[m] == to) return;
    float& total = out[static_cast<std::int64_t>(to) * length + column];
    float sum = total + grad[i];
    for (std::int64_t m = first + 1; m < count; ++m)
      if (at[m] == to) sum += grad[m * length + column];
    total = sum;
  });
}

}  // namespace shoal::ops::cuda
