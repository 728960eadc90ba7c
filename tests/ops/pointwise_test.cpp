// The functions of one number, PReLU's and Dropout's arithmetic: against double precision, at
// kinks, at the ends, on threads.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "shoal/ops/cpu/vector_math.h"
#include "shoal/ops/pointwise.h"

namespace shoal::pointwise_test {
namespace {

using ops::Map;
using ops::MapKind;
using ops::MapReads;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor tensor(const Shape& shape, const std::vector<float>& values) {
  Tensor result(shape);
  std::copy(values.begin(), values.end(), result.host_out().begin());
  return result;
}
Tensor tensor(const std::vector<float>& values) {
  return tensor(Shape{static_cast<std::int64_t>(values.size())}, values);
}

std::vector<float> values(const Tensor& tensor) {
  return {tensor.host().begin(), tensor.host().end()};
}

Context& context() {
  thread_local Context ctx({.threads = 2});
  return ctx;
}

std::vector<float> map(const Map& map, const std::vector<float>& x) {
  Tensor y(Shape{static_cast<std::int64_t>(x.size())});
  ops::map(context(), map, tensor(x), y);
  return values(y);
}

// Returns dx for dy of ones.
std::vector<float> slopes(const Map& map, const std::vector<float>& x) {
  const Tensor in = tensor(x), dy = tensor(std::vector<float>(x.size(), 1.0f));
  Tensor y(in.shape()), dx(in.shape());
  ops::map(context(), map, in, y);
  ops::map_backward(context(), map, ops::reads(map) == MapReads::kY ? y : in, dy, dx);
  return values(dx);
}

struct Formula {
  std::string name;
  Map map;
  std::function<double(double)> value;
  float low = -9, high = 9;
};

std::vector<Formula> formulas() {
  const auto relu = [](double a) { return [a](double x) { return x > 0 ? x : a * x; }; };
  const auto elu = [](double a) { return [a](double x) { return x > 0 ? x : a * std::expm1(x); }; };
  return {
      {"relu", {MapKind::kRelu}, relu(0)},
      {"relu leaky", {MapKind::kRelu, 0.25f}, relu(0.25)},
      {"relu negative", {MapKind::kRelu, -0.5f}, relu(-0.5)},
      {"elu", {MapKind::kElu, 1.5f}, elu(1.5)},
      {"elu negative", {MapKind::kElu, -0.5f}, elu(-0.5)},
      {"sigmoid", {MapKind::kSigmoid}, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"tanh", {MapKind::kTanh}, [](double x) { return std::tanh(x); }},
      {"abs", {MapKind::kAbs}, [](double x) { return std::fabs(x); }},
      {"linear", {MapKind::kPower, 1, 3, -1}, [](double x) { return 3 * x - 1; }},
      {"square",
       {MapKind::kPower, 2, 0.5f, 1},
       [](double x) { return (1 + 0.5 * x) * (1 + 0.5 * x); }},
      {"cube", {MapKind::kPower, 3, 0.5f, 1}, [](double x) { return std::pow(1 + 0.5 * x, 3); }},
      {"root", {MapKind::kPower, 0.5f, 1, 1}, [](double x) { return std::sqrt(1 + x); }, 0, 9},
      {"one over", {MapKind::kPower, -1, 1, 1}, [](double x) { return 1 / (1 + x); }, 0, 9},
      {"exp", {MapKind::kExp, 0.5f, 3}, [](double x) { return 3 * std::exp(0.5 * x); }},
      {"log",
       {MapKind::kLog, 2, 1, 1.5f},
       [](double x) { return 1.5 * std::log(1 + 2 * x); },
       0,
       9},
      {"softplus", {MapKind::kSoftplus}, [](double x) { return std::log1p(std::exp(x)); }},
      {"clip",
       {MapKind::kClip, -2.005f, 3.005f},
       [](double x) { return x < -2.005  ? -2.005
                             : x > 3.005 ? 3.005
                                         : x; }},
      {"capped",
       {MapKind::kCapped, 0.25f, 6.005f},
       [](double x) { return x > 0 ? std::min(x, 6.005) : 0.25 * x; }},
      {"swish", {MapKind::kSwish, 1.25f}, [](double x) { return x / (1 + std::exp(-1.25 * x)); }},
  };
}

// Goes from low to high, never at a kink of the formulas above.
std::vector<float> grid(const Formula& formula) {
  std::vector<float> x;
  for (float v = formula.low + 0.013f; v < formula.high; v += 0.0317f) x.push_back(v);
  return x;
}

TEST(PointwiseTest, ValuesAreThoseOfDoublePrecision) {
  for (const Formula& formula : formulas()) {
    const std::vector<float> x = grid(formula), y = map(formula.map, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = formula.value(x[i]);
      ASSERT_NEAR(y[i], want, 1e-6 * std::max(1.0, std::fabs(want)))
          << formula.name << " of " << x[i];
    }
  }
}

TEST(PointwiseTest, SlopesAreThoseOfTheFormula) {
  for (const Formula& formula : formulas()) {
    const std::vector<float> x = grid(formula), dx = slopes(formula.map, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double h = 1e-4, at = x[i];
      const double want = (formula.value(at + h) - formula.value(at - h)) / (2 * h);
      ASSERT_NEAR(dx[i], want, 1e-5 * std::max(1.0, std::fabs(want)))
          << formula.name << " at " << at;
    }
  }
}

TEST(PointwiseTest, InPlaceOnTwoThreadsIsTheSameToTheBit) {
  std::vector<float> x(70001);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i * 7919 % 1000) / 100 + 0.005f;
  Context one({.threads = 1});
  for (const Formula& formula : formulas()) {
    Tensor apart(Shape{70001}), in_place = tensor(x);
    ops::map(one, formula.map, in_place, apart);
    ops::map(context(), formula.map, in_place, in_place);
    EXPECT_EQ(values(in_place), values(apart)) << formula.name;
  }
}

TEST(PointwiseTest, KinksBelongToTheSideCaffeGivesThem) {
  EXPECT_EQ(slopes({MapKind::kRelu, 0.5f}, {0.0f, -0.0f}), (std::vector<float>{0.5f, 0.5f}));
  EXPECT_EQ(slopes({MapKind::kElu, 0.5f}, {0.0f}), std::vector<float>{0.5f});
  EXPECT_EQ(slopes({MapKind::kAbs}, {0.0f}), std::vector<float>{0.0f});
  EXPECT_EQ(slopes({MapKind::kClip, -1, 2}, {-1, 2, -1.5f, 2.5f}),
            (std::vector<float>{1, 1, 0, 0}));
  EXPECT_EQ(slopes({MapKind::kCapped, 0.5f, 6}, {0, 6, 7, 5}), (std::vector<float>{0.5f, 0, 0, 1}));
  EXPECT_EQ(map({MapKind::kCapped, 0, 6}, {kInfinity, -kInfinity}), (std::vector<float>{6, 0}));
  EXPECT_EQ(map({MapKind::kThreshold, 0.5f}, {0.5f, 0.500001f, -3}), (std::vector<float>{0, 1, 0}));
}

TEST(PointwiseTest, PowerOfNoughtScaleIsAConstantWithoutSlope) {
  EXPECT_EQ(map({MapKind::kPower, 2, 0, 3}, {5, -7}), (std::vector<float>{9, 9}));
  EXPECT_EQ(map({MapKind::kPower, 0, 2, 0}, {0, -7}), (std::vector<float>{1, 1}));
  EXPECT_EQ(slopes({MapKind::kPower, 2, 0, 3}, {5, -7}), (std::vector<float>{0, 0}));
  EXPECT_EQ(slopes({MapKind::kPower, 2, 1, 0}, {0, 3}), (std::vector<float>{0, 6}));
}

TEST(PointwiseTest, FarEndsNeitherOverflowNorLoseTheirSmallNumbers) {
  EXPECT_EQ(map({MapKind::kSigmoid}, {kInfinity, -kInfinity, 1e30f}),
            (std::vector<float>{1, 0, 1}));
  EXPECT_NEAR(map({MapKind::kSigmoid}, {-40})[0] / std::exp(-40.0), 1, 1e-6);
  EXPECT_EQ(map({MapKind::kTanh}, {kInfinity, -kInfinity, 1e-30f}),
            (std::vector<float>{1, -1, 1e-30f}));
  EXPECT_EQ(map({MapKind::kSoftplus}, {200, -kInfinity}), (std::vector<float>{200, 0}));
  EXPECT_NEAR(map({MapKind::kSoftplus}, {-50})[0] / std::exp(-50.0), 1, 1e-6);
  EXPECT_EQ(map({MapKind::kExp, 1, 1}, {100, -200}), (std::vector<float>{kInfinity, 0}));
  EXPECT_EQ(map({MapKind::kRelu}, {kInfinity, -kInfinity}), (std::vector<float>{kInfinity, 0}));
  EXPECT_EQ(slopes({MapKind::kSoftplus}, {200, -200}), (std::vector<float>{1, 0}));
}

TEST(PointwiseTest, NanStaysNan) {
  for (const Formula& formula : formulas())
    EXPECT_TRUE(std::isnan(map(formula.map, {kNan})[0])) << formula.name;
}

TEST(PointwiseTest, FastExpIsCloseAllTheWay) {
  double worst = 0;
  for (double x = -87; x < 88.7; x += 0.001) {
    const double want = std::exp(double{static_cast<float>(x)});
    worst = std::max(worst, std::fabs(ops::cpu::fast_exp(static_cast<float>(x)) - want) / want);
  }
  EXPECT_LT(worst, 3e-7);
}

TEST(PointwiseTest, PReLUTakesItsChannelsSlope) {
  const Tensor x = tensor(Shape{2, 2, 2}, {1, -1, 2, -2, 0, -3, -4, 4}), slope = tensor({0.5f, -2});
  const Tensor dy = tensor(Shape{2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  Tensor y(x.shape()), dx(x.shape()), dslope = tensor({100, 200});
  ops::prelu(context(), x, slope, 2, y);
  EXPECT_EQ(values(y), (std::vector<float>{1, -0.5f, 2, 4, 0, -1.5f, 8, 4}));
  ops::prelu_backward(context(), x, slope, 2, dy, dx);
  EXPECT_EQ(values(dx), (std::vector<float>{1, 1, 3, -8, 2.5f, 3, -14, 8}));
  ops::prelu_slope_backward(context(), x, 2, dy, dslope);  // adds -2 - 18 and -8 - 28
  EXPECT_EQ(values(dslope), (std::vector<float>{80, 164}));
  Tensor shared = tensor(Shape(), {1});
  ops::prelu_slope_backward(context(), x, 4, dy, shared);
  EXPECT_EQ(values(shared), std::vector<float>{-55});
}

constexpr std::int64_t kCoins = 100003;

TEST(DropoutTest, KeepsTheShareItPromisesAndScalesIt) {
  const Tensor x = tensor(std::vector<float>(kCoins, 3.0f));
  for (const float ratio : {0.1f, 0.5f, 0.9f}) {
    Tensor y(x.shape());
    ops::dropout(context(), {.seed = 7, .stream = 1, .position = 0}, ratio, x, y);
    double dropped = 0;
    for (const float v : values(y)) {
      if (v == 0)
        ++dropped;
      else
        ASSERT_FLOAT_EQ(v, 3 / (1 - ratio));
    }
    EXPECT_NEAR(dropped / kCoins, ratio, 4 * std::sqrt(ratio * (1 - ratio) / kCoins)) << ratio;
  }
}

TEST(DropoutTest, CoinsAreAFunctionOfTheStateAndTheElement) {
  const Tensor x = tensor(std::vector<float>(kCoins, 1.0f));
  Tensor all(x.shape()), again(x.shape()), later(x.shape());
  Context one({.threads = 1});
  ops::dropout(context(), {.seed = 7, .stream = 1, .position = 5}, 0.4f, x, all);
  ops::dropout(one, {.seed = 7, .stream = 1, .position = 5}, 0.4f, x, again);
  EXPECT_EQ(values(all), values(again));
  ops::dropout(one, {.seed = 7, .stream = 1, .position = 8}, 0.4f, x, later);
  for (std::int64_t i = 0; i + 3 < kCoins; ++i) ASSERT_EQ(later.in()[i], all.in()[i + 3]) << i;
  Random random(Random::State{.seed = 7, .stream = 1, .position = 5});
  for (std::int64_t i = 0; i < kCoins; ++i) ASSERT_EQ(all.in()[i] == 0, random.unit() < 0.4f) << i;
}

}  // namespace
}  // namespace shoal::pointwise_test
