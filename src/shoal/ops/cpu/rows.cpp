#include "shoal/ops/rows.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

std::int64_t row_length(const Tensor& x, const Tensor& index, const Tensor& picked) {
  const std::int64_t length = x.shape().count(1);
  CHECK(picked.count() == index.count() * length)
      << index.count() << " rows of " << x.shape().str() << " to " << picked.shape().str();
  return length;
}

}  // namespace

std::int64_t first_bad_row(Context&, const Tensor& index, std::int64_t rows) {
  const float* at = index.in();
  for (std::int64_t m = 0; m < index.count(); ++m)
    if (!(at[m] >= 0 && at[m] < static_cast<float>(rows) && at[m] == std::floor(at[m]))) return m;
  return -1;
}

void take_rows(Context& ctx, const Tensor& x, const Tensor& index, Tensor& y) {
  const std::int64_t length = row_length(x, index, y);
  const float *in = x.in(), *at = index.in();
  float* out = y.out();
  parallel_for(ctx.threads(), index.count(), grain_of(length),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t m = begin; m < end; ++m) {
                   const float* row = in + static_cast<std::int64_t>(at[m]) * length;
                   std::copy(row, row + length, out + m * length);
                 }
               });
}

void add_rows(Context& ctx, const Tensor& g, const Tensor& index, Tensor& gx) {
  const std::int64_t length = row_length(gx, index, g), count = index.count();
  const float *grad = g.in(), *at = index.in();
  float* out = gx.mut();
  // Threads share out the columns: two rows may be the same one.
  const std::int64_t grain = std::max<std::int64_t>(16, grain_of(count));
  parallel_for(ctx.threads(), length, grain, [=](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t m = 0; m < count; ++m) {
      float* row = out + static_cast<std::int64_t>(at[m]) * length;
      for (std::int64_t i = begin; i < end; ++i) row[i] += grad[m * length + i];
    }
  });
}

}  // namespace shoal::ops::cpu
