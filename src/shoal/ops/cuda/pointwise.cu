// Functions of one number, on a CUDA device.
#include "shoal/ops/pointwise.h"

#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/elementwise.h"

namespace shoal::ops::cuda {
namespace {

// One function over all elements: of x into y, or of what backward reads and dy into dx. All are
// numbers of one type.
struct Forward {
  Context& ctx;
  ElementType type;
  const void* x;
  void* y;
  std::int64_t n;
  template <class F>
  void operator()(F f) const {
    map_each(
        ctx, "map", type, n, [=] __host__ __device__(std::int64_t, float v) { return f(v); }, y, x);
  }
};
struct Backward {
  Context& ctx;
  ElementType type;
  const void *read, *dy;
  void* dx;
  std::int64_t n;
  template <class F>
  void operator()(F slope) const {
    map_each(
        ctx, "map's gradient", type, n,
        [=] __host__ __device__(std::int64_t, float v, float d) { return slope(v, d); }, dx, read,
        dy);
  }
};

__host__ __device__ inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

__host__ __device__ inline float softplus(float x) {
  const float tail = std::log1p(std::exp(x > 0 ? -x : x));
  return x > 0 ? x + tail : tail;
}

__host__ __device__ inline float swish_slope(float beta, float x) {
  const float s = sigmoid(beta * x);
  return s + beta * x * s * (1 - s);
}

void relu(const Forward& each, float slope) {
  if (slope == 0) return each([] __host__ __device__(float x) { return x < 0 ? 0.0f : x; });
  each([=] __host__ __device__(float x) { return x > 0 ? x : slope * x; });
}

void power(const Forward& each, float exponent, float scale, float shift) {
  if (exponent == 1) return each([=] __host__ __device__(float x) { return shift + scale * x; });
  if (exponent == 2)
    return each(
        [=] __host__ __device__(float x) { return (shift + scale * x) * (shift + scale * x); });
  if (exponent == 0.5f)
    return each([=] __host__ __device__(float x) { return std::sqrt(shift + scale * x); });
  each([=] __host__ __device__(float x) { return std::pow(shift + scale * x, exponent); });
}

void power_backward(const Backward& each, float exponent, float scale, float shift) {
  const float factor = exponent * scale;
  if (exponent == 1 || factor == 0)
    return each([=] __host__ __device__(float, float dy) { return factor * dy; });
  if (exponent == 2)
    return each(
        [=] __host__ __device__(float x, float dy) { return dy * factor * (shift + scale * x); });
  each([=] __host__ __device__(float x, float dy) {
    return dy * factor * std::pow(shift + scale * x, exponent - 1);
  });
}

void elu_backward(const Backward& each, float a) {
  if (a < 0)
    return each(
        [=] __host__ __device__(float x, float dy) { return x > 0 ? dy : dy * a * std::exp(x); });
  each([=] __host__ __device__(float y, float dy) { return y > 0 ? dy : dy * (y + a); });
}

}  // namespace

void map(Context& ctx, const Map& map, const Tensor& x, Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
  const LayoutPtr layout = x.layout();
  const void* const in = x.read(ctx, layout);
  const Forward each{ctx, type_of(layout), in, y.write(ctx, layout), y.count()};
  const float a = map.a, b = map.b, c = map.c;
  switch (map.kind) {
    case MapKind::kRelu: return relu(each, a);
    case MapKind::kElu:
      return each([=] __host__ __device__(float x) { return x > 0 ? x : a * std::expm1(x); });
    case MapKind::kSigmoid: return each([] __host__ __device__(float x) { return sigmoid(x); });
    case MapKind::kTanh: return each([] __host__ __device__(float x) { return std::tanh(x); });
    case MapKind::kAbs: return each([] __host__ __device__(float x) { return std::fabs(x); });
    case MapKind::kPower: return power(each, a, b, c);
    case MapKind::kExp:
      return each([=] __host__ __device__(float x) { return b * std::exp(a * x); });
    case MapKind::kLog:
      return each([=] __host__ __device__(float x) { return c * std::log(b + a * x); });
    case MapKind::kSoftplus: return each([] __host__ __device__(float x) { return softplus(x); });
    case MapKind::kThreshold:
      return each([=] __host__ __device__(float x) { return x > a ? 1.0f : 0.0f; });
    case MapKind::kClip:
      return each([=] __host__ __device__(float x) { return x < a ? a : x > b ? b : x; });
    case MapKind::kSwish:
      return each([=] __host__ __device__(float x) { return x * sigmoid(a * x); });
    case MapKind::kCapped:
      return each([=] __host__ __device__(float x) {
        return x > b ? b : x < 0 ? (a == 0 ? 0 : a * x) : x;
      });
  }
}

void map_backward(Context& ctx, const Map& map, const Tensor& read, const Tensor& dy, Tensor& dx) {
  CHECK(read.count() == dx.count() && dy.count() == dx.count())
      << "shapes " << read.shape().str() << ", " << dy.shape().str() << " and " << dx.shape().str();
  const LayoutPtr layout = common_layout(read, dy);
  const void *const in = read.read(ctx, layout), *const up = dy.read(ctx, layout);
  const Backward each{ctx, type_of(layout), in, up, dx.write(ctx, layout), dx.count()};
  const float a = map.a, b = map.b, c = map.c;
  switch (map.kind) {
    case MapKind::kRelu:
      return each([=] __host__ __device__(float v, float dy) { return v > 0 ? dy : a * dy; });
    case MapKind::kElu: return elu_backward(each, a);
    case MapKind::kSigmoid:
      return each([] __host__ __device__(float y, float dy) { return dy * y * (1 - y); });
    case MapKind::kTanh:
      return each([] __host__ __device__(float y, float dy) { return dy * (1 - y * y); });
    case MapKind::kAbs:
      return each([] __host__ __device__(float x, float dy) {
        return x > 0 ? dy : x < 0 ? -dy : 0 * dy;
      });
    case MapKind::kPower: return power_backward(each, a, b, c);
    case MapKind::kExp:
      return each([=] __host__ __device__(float y, float dy) { return dy * y * a; });
    case MapKind::kLog:
      return each(
          [=] __host__ __device__(float x, float dy) { return dy * (a * c) / (b + a * x); });
    case MapKind::kSoftplus:
      return each([] __host__ __device__(float x, float dy) { return dy * sigmoid(x); });
    case MapKind::kThreshold:
      return each([] __host__ __device__(float, float dy) { return 0 * dy; });
    case MapKind::kClip:
      return each(
          [=] __host__ __device__(float x, float dy) { return x < a || x > b ? 0 * dy : dy; });
    case MapKind::kSwish:
      return each([=] __host__ __device__(float x, float dy) { return dy * swish_slope(a, x); });
    case MapKind::kCapped:
      return each([=] __host__ __device__(float x, float dy) {
        return x > 0 ? (x >= b ? 0 * dy : dy) : a * dy;
      });
  }
}

}  // namespace shoal::ops::cuda
