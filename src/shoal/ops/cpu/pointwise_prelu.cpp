#include "shoal/base/log.h"
#include "shoal/ops/cpu/broadcast_blocked.h"
#include "shoal/ops/cpu/elementwise.h"
#include "shoal/ops/pointwise.h"

namespace shoal::ops::cpu {
namespace {

// Calls f(slope of the row's channel, first element, one past the last) for each row of `inner`
// neighbours of one channel.
template <class F>
void for_rows(Context& ctx, std::int64_t count, const Tensor& slope, std::int64_t inner, F f) {
  const std::int64_t channels = slope.count();
  CHECK(count % (channels * inner) == 0)
      << count << " elements in rows of " << inner << ", " << channels << " channels";
  const float* slopes = slope.in();
  parallel_for(ctx.threads(), count / inner, grain_of(inner),
               [&](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   f(slopes[row % channels], row * inner, (row + 1) * inner);
               });
}

// Returns how x meets the slopes of its channels, or one slope.
BroadcastDims dims_of(const Tensor& x, const Tensor& slope, std::int64_t inner) {
  const std::int64_t channels = slope.count();
  return {.outer = x.count() / (channels * inner), .dim = channels, .inner = inner};
}

}  // namespace

void prelu(Context& ctx, const Tensor& x, const Tensor& slope, std::int64_t inner, Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
  if (x.count() == 0) return;
  const BroadcastDims dims = dims_of(x, slope, inner);
  if (const LayoutPtr layout = blocks_of(dims, x))
    return BlockedBroadcast(ctx, dims, layout).prelu(x, slope, y);
  const float* in = x.in();
  float* out = y.out();
  for_rows(ctx, x.count(), slope, inner, [=](float a, std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) out[i] = in[i] > 0 ? in[i] : a * in[i];
  });
}

void prelu_backward(Context& ctx, const Tensor& x, const Tensor& slope, std::int64_t inner,
                    const Tensor& dy, Tensor& dx) {
  CHECK(x.count() == dx.count() && dy.count() == dx.count())
      << "shapes " << x.shape().str() << " and " << dx.shape().str();
  if (x.count() == 0) return;
  const BroadcastDims dims = dims_of(x, slope, inner);
  if (const LayoutPtr layout = blocks_of(dims, x))
    return BlockedBroadcast(ctx, dims, layout).prelu_backward(x, slope, dy, dx);
  const float *in = x.in(), *up = dy.in();
  float* out = dx.out();
  for_rows(ctx, x.count(), slope, inner, [=](float a, std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) out[i] = in[i] > 0 ? up[i] : a * up[i];
  });
}

void prelu_slope_backward(Context& ctx, const Tensor& x, std::int64_t inner, const Tensor& dy,
                          Tensor& dslope) {
  CHECK(x.count() == dy.count()) << "shapes " << x.shape().str() << " and " << dy.shape().str();
  if (x.count() == 0) return;
  const BroadcastDims dims = dims_of(x, dslope, inner);
  if (const LayoutPtr layout = blocks_of(dims, x))
    return BlockedBroadcast(ctx, dims, layout).prelu_slope_backward(x, dy, dslope);
  const std::int64_t channels = dims.dim, outer = dims.outer;
  const float *in = x.in(), *up = dy.in();
  float* sums = dslope.mut();
  const auto term = [=](std::int64_t i) { return in[i] > 0 ? 0.0 : double{up[i]} * in[i]; };
  if (channels == 1) {
    sums[0] += static_cast<float>(blocked_sum(ctx, x.count(), term));
    return;
  }
  parallel_for(ctx.threads(), channels, grain_of(outer * inner),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t c = begin; c < end; ++c) {
                   double sum = 0;
                   for (std::int64_t o = 0; o < outer; ++o)
                     for (std::int64_t i = (o * channels + c) * inner, last = i + inner; i < last;
                          ++i)
                       sum += term(i);
                   sums[c] += static_cast<float>(sum);
                 }
               });
}

}  // namespace shoal::ops::cpu
