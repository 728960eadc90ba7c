// Biases of channels, on a CUDA device.
#include "shoal/base/log.h"
#include "shoal/ops/cuda/channels.h"
#include "shoal/ops/cuda/elementary.h"

namespace shoal::ops::cuda {

void add_bias(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& b, Tensor& y) {
  const std::int64_t outer = y.count() / std::max<std::int64_t>(1, channels * inner);
  CHECK(b.count() == channels && outer * channels * inner == y.count())
      << b.shape().str() << " onto " << y.shape().str();
  const float* const bias = read(ctx, b);
  const Order order({.outer = outer, .dim = channels, .inner = inner}, y.layout());
  void* const out = y.mut(ctx, order.layout);
  const ChannelOf channel(order.dims);
  map_each(
      ctx, "bias", order.type, y.count(),
      [=] __host__ __device__(std::int64_t i, float v) { return v + bias[channel(i)]; }, out, out);
}

void add_bias_gradient(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& dy,
                       Tensor& db) {
  const std::int64_t outer = dy.count() / std::max<std::int64_t>(1, channels * inner);
  CHECK(db.count() == channels && outer * channels * inner == dy.count())
      << dy.shape().str() << " onto " << db.shape().str();
  cuda::shift_backward(ctx, {.outer = outer, .dim = channels, .inner = inner}, dy,
                       {.tensor = &db, .add = true});
}

}  // namespace shoal::ops::cuda
