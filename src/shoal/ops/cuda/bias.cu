// Biases of channels, on a CUDA device.
#include "shoal/base/log.h"
#include "shoal/ops/cuda/channel_sums.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/relu.h"

namespace shoal::ops::cuda {

void add_bias(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& b, Tensor& y) {
  const std::int64_t outer = y.count() / std::max<std::int64_t>(1, channels * inner);
  CHECK(b.count() == channels && outer * channels * inner == y.count())
      << b.shape().str() << " onto " << y.shape().str();
  const float* const bias = read(ctx, b);
  const Order order({.outer = outer, .dim = channels, .inner = inner}, y.layout());
  void* const out = y.mut(ctx, order.layout);
  map_channels(
      ctx, "bias", order, bias, [=] __host__ __device__(float own, float v) { return v + own; },
      out, out);
}

void add_bias_gradient(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& dy,
                       Tensor& db) {
  const std::int64_t outer = dy.count() / std::max<std::int64_t>(1, channels * inner);
  CHECK(db.count() == channels && outer * channels * inner == dy.count())
      << dy.shape().str() << " onto " << db.shape().str();
  cuda::shift_backward(ctx, {.outer = outer, .dim = channels, .inner = inner}, dy,
                       {.tensor = &db, .add = true});
}

namespace {

// Both in one pass over numbers with channels last. False, and nothing is done, if they cannot be
// read in packs.
template <class N>
bool gate_and_sum(Context& ctx, Relu relu, const BroadcastDims& dims, const N* y, N* dy,
                  Tensor& db) {
  constexpr int kLanes = Pack<N>::kSize;
  if (!are_packs<kLanes>(dims, {y, dy})) return false;
  const auto gate = [=] __host__ __device__(float, float made, float slope) {
    return relu.backward(made, slope);
  };
  const SumTarget sums(ctx, {.tensor = &db, .add = true});
  sum_columns<double>(
      ctx, "gradients of a ReLU and a bias", dims.outer,
      NumberColumns<double, kLanes, 2, N, NoConstant, std::remove_const_t<decltype(gate)>>{
          {{y, dy}}, NoConstant(), gate, dims.dim, dy},
      [=] __host__ __device__(std::int64_t d, double sum) { sums.put(d, sum); });
  return true;
}

}  // namespace

bool relu_and_bias_gradient(Context& ctx, float slope, std::int64_t channels, std::int64_t inner,
                            const Tensor& y, Tensor& dy, Tensor* db) {
  const std::int64_t outer = dy.count() / std::max<std::int64_t>(1, channels * inner);
  CHECK(outer * channels * inner == dy.count() && y.count() == dy.count())
      << y.shape().str() << " and " << dy.shape().str();
  const Order order({.outer = outer, .dim = channels, .inner = inner}, common_layout(y, dy));
  bool is_done = false;
  if (db != nullptr && dy.count() > 0)
    with_type(order.type, [&](auto one) {
      using N = decltype(one);
      is_done = gate_and_sum(ctx, Relu(slope), order.dims, as<N>(y.read(ctx, order.layout)),
                             as<N>(dy.mut(ctx, order.layout)), *db);
    });
  if (!is_done) cuda::map_backward(ctx, {MapKind::kRelu, slope}, y, dy, dy);
  return is_done;
}

}  // namespace shoal::ops::cuda
