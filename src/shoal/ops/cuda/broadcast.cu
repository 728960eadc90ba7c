// A short vector against a tensor, on a CUDA device.
#include "shoal/ops/broadcast.h"

#include "shoal/base/log.h"
#include "shoal/ops/cuda/channel_sums.h"
#include "shoal/ops/cuda/elementary.h"

namespace shoal::ops::cuda {
namespace {

void check(const BroadcastDims& s, const Tensor& x, const Tensor& y, std::int64_t numbers) {
  CHECK(x.count() == s.outer * s.dim * s.inner && y.count() == x.count() && numbers == s.dim)
      << s.outer << " x " << s.dim << " x " << s.inner << " for shapes " << x.shape().str() << ", "
      << y.shape().str() << " and " << numbers << " numbers";
}

}  // namespace

void scale_and_shift(Context& ctx, const BroadcastDims& dims, const Tensor& x, const Tensor& factor,
                     const Tensor* shift, Tensor& y) {
  check(dims, x, y, factor.count());
  CHECK(shift == nullptr || shift->count() == dims.dim);
  const Order order(dims, x.layout());
  const void* const in = x.read(ctx, order.layout);
  const float* const scale = read(ctx, factor);
  const float* const add = shift != nullptr ? read(ctx, *shift) : nullptr;
  const ChannelOf channel(order.dims);
  map_each(
      ctx, "scale and shift", order.type, y.count(),
      [=] __host__ __device__(std::int64_t i, float v) {
        const std::int64_t d = channel(i);
        return scale[d] * v + (add != nullptr ? add[d] : 0.0f);
      },
      y.write(ctx, order.layout), in);
}

void shift(Context& ctx, const BroadcastDims& dims, const Tensor& x, const Tensor& shift,
           Tensor& y) {
  check(dims, x, y, shift.count());
  const Order order(dims, x.layout());
  const void* const in = x.read(ctx, order.layout);
  map_channels(
      ctx, "shift", order, read(ctx, shift),
      [=] __host__ __device__(float own, float v) { return v + own; }, y.write(ctx, order.layout),
      in);
}

void scale_backward(Context& ctx, const BroadcastDims& dims, const Tensor& g, const Tensor& x,
                    const Tensor& factor, Tensor* gx, SumInto g_factor, SumInto g_shift) {
  check(dims, g, g, factor.count());
  for (const SumInto& into : {g_factor, g_shift})
    CHECK(into.tensor == nullptr || into.tensor->count() == dims.dim);
  const bool products = g_factor.tensor != nullptr;
  CHECK(!products || x.count() == g.count())
      << "shapes " << x.shape().str() << " and " << g.shape().str();
  const Order order(dims, products ? common_layout(g, x) : g.layout());
  const void* const grad = g.read(ctx, order.layout);
  if (products) {
    const void* const in = x.read(ctx, order.layout);
    const SumTarget factors(ctx, g_factor), shifts(ctx, g_shift);
    sum_channels<TwoSums>(
        ctx, "scale's gradients", order, NoConstant(),
        [=] __host__ __device__(float, float slope, float v) {
          return TwoFloats{slope * v, slope};
        },
        [=] __host__ __device__(std::int64_t d, TwoSums sums) {
          factors.put(d, sums.first);
          shifts.put(d, sums.second);
        },
        grad, in);
  } else if (g_shift.tensor != nullptr) {
    cuda::shift_backward(ctx, dims, g, g_shift);
  }
  if (gx == nullptr) return;
  map_channels(
      ctx, "scale's gradient", order, read(ctx, factor),
      [=] __host__ __device__(float own, float slope) { return slope * own; },
      gx->write(ctx, order.layout), grad);
}

void shift_backward(Context& ctx, const BroadcastDims& dims, const Tensor& g, SumInto g_shift) {
  check(dims, g, g, g_shift.tensor->count());
  const Order order(dims, g.layout());
  const void* const grad = g.read(ctx, order.layout);
  const SumTarget shifts(ctx, g_shift);
  sum_channels<double>(
      ctx, "shift's gradient", order, NoConstant(),
      [=] __host__ __device__(float, float slope) { return slope; },
      [=] __host__ __device__(std::int64_t d, double sum) { shifts.put(d, sum); }, grad);
}

}  // namespace shoal::ops::cuda
