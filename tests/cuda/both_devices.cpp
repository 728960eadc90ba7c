// Implements the comparison of the CPU and a CUDA device.
#include "cuda/both_devices.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/base/error.h"
#include "shoal/base/random.h"
#include "shoal/ops/cuda/device_layout.h"

namespace shoal::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                kInfinity = std::numeric_limits<float>::infinity();

float draw(Random& random, const Start& start) {
  switch (start.numbers) {
    case Start::Numbers::kDrawn: return random.uniform(-1, 1);
    case Start::Numbers::kPositive: return random.uniform(0.1f, 2);
    case Start::Numbers::kTies: return static_cast<float>(random.below(5)) / 2 - 1;
    case Start::Numbers::kOdd: {
      const float odd[] = {kNaN, kInfinity, -kInfinity, -0.0f};
      const std::uint64_t which = random.below(24);
      return which < 4 ? odd[which] : random.uniform(-1, 1);
    }
    case Start::Numbers::kLabels: {
      const float bad[] = {-1, static_cast<float>(start.below), 0.5f};
      const std::uint64_t which = random.below(12);
      if (which < 3) return bad[which];
      [[fallthrough]];
    }
    case Start::Numbers::kWhole:
      return static_cast<float>(random.below(static_cast<std::uint64_t>(start.below)));
    case Start::Numbers::kNaN: return kNaN;
  }
  return kNaN;
}

bool alike(float got, float want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::fabs(double{got} - want) <= tolerance;
}

}  // namespace

Ts start(const std::vector<Start>& tensors) {
  Ts made;
  for (const Start& one : tensors) {
    Random random(11, made.size());
    for (float& x : made.emplace_back(one.shape).host_out()) x = draw(random, one);
  }
  return made;
}

std::string difference(const Ts& got, const Ts& want, double tolerance) {
  for (std::size_t t = 0; t < want.size(); ++t) {
    double most = 0;
    for (const float x : want[t].host())
      if (std::isfinite(x)) most = std::max<double>(most, std::fabs(x));
    for (std::size_t i = 0; i < want[t].host().size(); ++i) {
      const float one = got[t].host()[i], other = want[t].host()[i];
      if (!alike(one, other, tolerance * most))
        return str("tensor ", t, "[", i, "] is ", one, ", want ", other, " (largest ", most, ")");
    }
  }
  return "";
}

float rounded(float x, Precision precision) {
  const bool brain = precision == Precision::kBfloat16;
  if (!ops::cuda::takes_short(precision) || x == 0 || !std::isfinite(x)) return x;
  const int least = brain ? -126 : -14, bits = brain ? 7 : 10;
  const int exponent = std::max(std::ilogb(x), least);
  const double unit = std::ldexp(1.0, exponent - bits);
  const auto whole = static_cast<float>(std::nearbyint(x / unit) * unit);
  const bool fits = brain || std::fabs(whole) <= 65504;
  return fits ? whole : std::copysign(std::numeric_limits<float>::infinity(), x);
}

void put_channels_last(Context& ctx, Tensor& tensor, std::int64_t channels, std::int64_t inner) {
  if (!ctx.device().is_host()) {
    const auto type = ops::cuda::input_type(ctx.precision());
    tensor.mut(ctx, ops::cuda::channels_last(channels, inner, type));
    return;
  }
  for (float& x : tensor.host_mut()) x = rounded(x, ctx.precision());
}

void expect_channels_last(Context& ctx, const Tensor& tensor, std::int64_t channels,
                          std::int64_t inner) {
  if (ctx.device().is_host()) return;
  const auto type = ops::cuda::input_type(ctx.precision());
  EXPECT_TRUE(same_layout(tensor.layout(), ops::cuda::channels_last(channels, inner, type)));
}

void OnCudaDevices::expect_same(const std::vector<CudaCase>& cases, Precision precision) {
  const double unit = precision == Precision::kBfloat16 ? 0x1p-8 : 0x1p-11;
  for (const CudaCase& one : cases) {
    SCOPED_TRACE(str(one.name, ", precision ", static_cast<int>(precision)));
    Ts got = start(one.tensors), want = start(one.tensors);
    Context cpu({.precision = precision}), own({.device = GetParam(), .precision = precision});
    one.run(cpu, want);
    one.run(own, got);
    EXPECT_EQ(difference(got, want, ops::cuda::takes_short(precision) ? 4 * unit : one.tolerance),
              "");
  }
}

void OnCudaDevices::expect_same_in_all_types(const std::vector<CudaCase>& cases) {
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16, Precision::kFloat16})
    expect_same(cases, precision);
}

}  // namespace shoal::test
