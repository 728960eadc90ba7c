// The ReLU with a slope a channel, on a CUDA device.
#include "shoal/base/log.h"
#include "shoal/ops/cuda/channel_sums.h"
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
  const Order order(dims_of(x.count(), slope.count(), inner), x.layout());
  const void* const in = x.read(ctx, order.layout);
  map_channels(
      ctx, "PReLU", order, read(ctx, slope),
      [=] __host__ __device__(float own, float v) { return v > 0 ? v : own * v; },
      y.write(ctx, order.layout), in);
}

void prelu_backward(Context& ctx, const Tensor& x, const Tensor& slope, std::int64_t inner,
                    const Tensor& dy, Tensor& dx) {
  CHECK(x.count() == dx.count() && dy.count() == dx.count())
      << "shapes " << x.shape().str() << " and " << dx.shape().str();
  if (x.count() == 0) return;
  const Order order(dims_of(x.count(), slope.count(), inner), common_layout(x, dy));
  const void *const in = x.read(ctx, order.layout), *const up = dy.read(ctx, order.layout);
  map_channels(
      ctx, "PReLU's gradient", order, read(ctx, slope),
      [=] __host__ __device__(float own, float v, float d) { return v > 0 ? d : own * d; },
      dx.write(ctx, order.layout), in, up);
}

void prelu_slope_backward(Context& ctx, const Tensor& x, std::int64_t inner, const Tensor& dy,
                          Tensor& dslope) {
  CHECK(x.count() == dy.count()) << "shapes " << x.shape().str() << " and " << dy.shape().str();
  if (x.count() == 0) return;
  const Order order(dims_of(x.count(), dslope.count(), inner), common_layout(x, dy));
  const void *const in = x.read(ctx, order.layout), *const up = dy.read(ctx, order.layout);
  float* const sums = mut(ctx, dslope);
  sum_channels<double>(
      ctx, "PReLU's slopes", order, NoConstant(),
      [=] __host__ __device__(float, float v, float d) { return v > 0 ? 0.0f : d * v; },
      [=] __host__ __device__(std::int64_t c, double sum) { sums[c] += static_cast<float>(sum); },
      in, up);
}

}  // namespace shoal::ops::cuda
