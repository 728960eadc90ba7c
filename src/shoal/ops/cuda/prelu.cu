// The ReLU with a slope a channel, on a CUDA device.
#include "shoal/base/log.h"
#include "shoal/ops/cuda/channels.h"
#include "shoal/ops/cuda/elementary.h"

namespace shoal::ops::cuda {
namespace {

BroadcastDims dims_of(std::int64_t count, std::int64_t channels, std::int64_t inner) {
  CHECK(count % (channels * inner) == 0)
      << count << " elements in rows of " << inner << ", " << channels << " channels";
  return {.outer = count / (channels * inner), .dim = channels, .inner = inner};
}

}  // namespace

void prelu(Context& ctx, const Tensor& x, const Tensor& slope, std::int64_t inner, Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
  if (x.count() == 0) return;
  const ChannelOf channel(dims_of(x.count(), slope.count(), inner));
  const float *const in = read(ctx, x), *const slopes = read(ctx, slope);
  float* const out = write(ctx, y);
  each(ctx, "PReLU", y.count(), [=] __host__ __device__(std::int64_t i) {
    out[i] = in[i] > 0 ? in[i] : slopes[channel(i)] * in[i];
  });
}

void prelu_backward(Context& ctx, const Tensor& x, const Tensor& slope, std::int64_t inner,
                    const Tensor& dy, Tensor& dx) {
  CHECK(x.count() == dx.count() && dy.count() == dx.count())
      << "shapes " << x.shape().str() << " and " << dx.shape().str();
  if (x.count() == 0) return;
  const ChannelOf channel(dims_of(x.count(), slope.count(), inner));
  const float *const in = read(ctx, x), *const slopes = read(ctx, slope), *const up = read(ctx, dy);
  float* const out = write(ctx, dx);
  each(ctx, "PReLU's gradient", dx.count(), [=] __host__ __device__(std::int64_t i) {
    out[i] = in[i] > 0 ? up[i] : slopes[channel(i)] * up[i];
  });
}

void prelu_slope_backward(Context& ctx, const Tensor& x, std::int64_t inner, const Tensor& dy,
                          Tensor& dslope) {
  CHECK(x.count() == dy.count()) << "shapes " << x.shape().str() << " and " << dy.shape().str();
  if (x.count() == 0) return;
  const float *const in = read(ctx, x), *const up = read(ctx, dy);
  float* const sums = mut(ctx, dslope);
  sum_channels<double>(
      ctx, "PReLU's slopes", dims_of(x.count(), dslope.count(), inner),
      [=] __host__ __device__(std::int64_t i, std::int64_t) {
        return in[i] > 0 ? 0.0 : double{up[i]} * in[i];
      },
      [=] __host__ __device__(std::int64_t c, double sum) { sums[c] += static_cast<float>(sum); });
}

}  // namespace shoal::ops::cuda
