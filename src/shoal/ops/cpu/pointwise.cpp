#include "shoal/ops/pointwise.h"

#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/elementwise.h"
#include "shoal/ops/cpu/relu.h"
#include "shoal/ops/cpu/vector_math.h"

namespace shoal::ops::cpu {
namespace {

// One function over all elements: of x into y, or of what backward reads and dy into dx.
struct Forward {
  Context& ctx;
  const Elements<1>& of;
  template <class F>
  void operator()(F f) const {
    with_type(of.type, [&](auto one) {
      using N = decltype(one);
      for_elements(ctx, of.count,
                   [in = numbers<N>(of.in[0]), out = numbers<N>(of.out), f](std::int64_t i) {
                     out[i] = number<N>(f(value(in[i])));
                   });
    });
  }
};
struct Backward {
  Context& ctx;
  const Elements<2>& of;
  template <class F>
  void operator()(F slope) const {
    with_type(of.type, [&](auto one) {
      using N = decltype(one);
      for_elements(
          ctx, of.count,
          [in = numbers<N>(of.in[0]), d = numbers<N>(of.in[1]), out = numbers<N>(of.out),
           slope](std::int64_t i) { out[i] = number<N>(slope(value(in[i]), value(d[i]))); });
    });
  }
};

// Tells whether both passes make zeros of zeros: then the padding of a layout stays as it is.
Padding padding_of(const Map& map) {
  switch (map.kind) {
    case MapKind::kRelu:
    case MapKind::kElu:
    case MapKind::kTanh:
    case MapKind::kAbs:
    case MapKind::kCapped:
    case MapKind::kSwish: return Padding::kStaysZero;
    default: return Padding::kChanges;
  }
}

void relu(const Forward& each, float slope) {
  if (slope == 0) return each([](float x) { return cpu::relu(x); });
  each([slope](float x) { return leaky_relu(slope, x); });
}

void power(const Forward& each, float exponent, float scale, float shift) {
  if (exponent == 1) return each([=](float x) { return shift + scale * x; });
  if (exponent == 2)
    return each([=](float x) { return (shift + scale * x) * (shift + scale * x); });
  if (exponent == 0.5f) return each([=](float x) { return std::sqrt(shift + scale * x); });
  each([=](float x) { return std::pow(shift + scale * x, exponent); });
}

void power_backward(const Backward& each, float exponent, float scale, float shift) {
  const float factor = exponent * scale;
  if (exponent == 1 || factor == 0) return each([=](float, float dy) { return factor * dy; });
  if (exponent == 2)
    return each([=](float x, float dy) { return dy * factor * (shift + scale * x); });
  each([=](float x, float dy) { return dy * factor * std::pow(shift + scale * x, exponent - 1); });
}

float swish_slope(float beta, float x) {
  const float s = fast_sigmoid(beta * x);
  return s + beta * x * s * (1 - s);
}

}  // namespace

void map(Context& ctx, const Map& map, const Tensor& x, Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
  const Elements<1> of = elements(ctx, {&x}, y, padding_of(map));
  const Forward each{ctx, of};
  const float a = map.a, b = map.b, c = map.c;
  switch (map.kind) {
    case MapKind::kRelu: return relu(each, a);
    case MapKind::kElu:
      return each([a](float x) { return x > 0 ? x : a * fast_expm1_negative(x); });
    case MapKind::kSigmoid: return each([](float x) { return fast_sigmoid(x); });
    case MapKind::kTanh: return each([](float x) { return fast_tanh(x); });
    case MapKind::kAbs: return each([](float x) { return std::fabs(x); });
    case MapKind::kPower: return power(each, a, b, c);
    case MapKind::kExp: return each([a, b](float x) { return b * fast_exp(a * x); });
    case MapKind::kLog: return each([a, b, c](float x) { return c * std::log(b + a * x); });
    case MapKind::kSoftplus: return each([](float x) { return fast_softplus(x); });
    case MapKind::kThreshold: return each([a](float x) { return x > a ? 1.0f : 0.0f; });
    case MapKind::kClip: return each([a, b](float x) { return x < a ? a : x > b ? b : x; });
    case MapKind::kSwish: return each([a](float x) { return x * fast_sigmoid(a * x); });
    case MapKind::kCapped:
      return each([a, b](float x) { return x > b ? b : x < 0 ? (a == 0 ? 0 : a * x) : x; });
  }
}

void map_backward(Context& ctx, const Map& map, const Tensor& read, const Tensor& dy, Tensor& dx) {
  CHECK(read.count() == dx.count() && dy.count() == dx.count())
      << "shapes " << read.shape().str() << ", " << dy.shape().str() << " and " << dx.shape().str();
  const Elements<2> of = elements(ctx, {&read, &dy}, dx, padding_of(map));
  const Backward each{ctx, of};
  const float a = map.a, b = map.b, c = map.c;
  switch (map.kind) {
    case MapKind::kRelu: return each([a](float v, float dy) { return v > 0 ? dy : a * dy; });
    case MapKind::kElu:
      if (a < 0) return each([a](float x, float dy) { return x > 0 ? dy : dy * a * fast_exp(x); });
      return each([a](float y, float dy) { return y > 0 ? dy : dy * (y + a); });
    case MapKind::kSigmoid: return each([](float y, float dy) { return dy * y * (1 - y); });
    case MapKind::kTanh: return each([](float y, float dy) { return dy * (1 - y * y); });
    case MapKind::kAbs:
      return each([](float x, float dy) { return x > 0 ? dy : x < 0 ? -dy : 0 * dy; });
    case MapKind::kPower: return power_backward(each, a, b, c);
    case MapKind::kExp: return each([a](float y, float dy) { return dy * y * a; });
    case MapKind::kLog:
      return each([a, b, c](float x, float dy) { return dy * (a * c) / (b + a * x); });
    case MapKind::kSoftplus: return each([](float x, float dy) { return dy * fast_sigmoid(x); });
    case MapKind::kThreshold: return each([](float, float dy) { return 0 * dy; });
    case MapKind::kClip:
      return each([a, b](float x, float dy) { return x < a || x > b ? 0 * dy : dy; });
    case MapKind::kSwish: return each([a](float x, float dy) { return dy * swish_slope(a, x); });
    case MapKind::kCapped:
      return each([a, b](float x, float dy) { return x > 0 ? (x >= b ? 0 * dy : dy) : a * dy; });
  }
}

bool relu_and_bias_gradient(Context& ctx, float slope, std::int64_t, std::int64_t, const Tensor& y,
                            Tensor& dy, Tensor*) {
  map_backward(ctx, {MapKind::kRelu, slope}, y, dy, dy);
  return false;
}

}  // namespace shoal::ops::cpu
