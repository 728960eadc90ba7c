// Tests of products and convolutions whose inputs are of 16 bits, beside the CPU's of rounded
// numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cuda/both_devices.h"
#include "cuda/devices.h"
#include "shoal/ops/cpu/elementary.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/impls.h"
#include "support/ops.h"

namespace shoal::test::short_floats_test {
namespace {

using ops::axis, ops::Trans;

// To the nearest number with so many bits of fraction, a tie to the even one, by arithmetic.
float rounded(float x, Precision precision) {
  const bool brain = precision == Precision::kBfloat16;
  if (x == 0 || !std::isfinite(x)) return x;
  const int least = brain ? -126 : -14, bits = brain ? 7 : 10;
  const int exponent = std::max(std::ilogb(x), least);
  const double unit = std::ldexp(1.0, exponent - bits);
  const auto whole = static_cast<float>(std::nearbyint(x / unit) * unit);
  const bool fits = brain || std::fabs(whole) <= 65504;
  return fits ? whole : std::copysign(std::numeric_limits<float>::infinity(), x);
}
Tensor rounded(const Tensor& x, Precision precision) {
  Tensor y(x.shape());
  std::ranges::transform(x.host(), y.host_out().begin(),
                         [&](float one) { return rounded(one, precision); });
  return y;
}

class ShortFloats : public testing::TestWithParam<std::tuple<const Device*, Precision>> {
 protected:
  Precision precision() const { return std::get<1>(GetParam()); }
  Context cpu_{{}}, gpu_{{.device = std::get<0>(GetParam()), .precision = precision()}};
};

TEST_P(ShortFloats, AProductRoundsItsInputsAndNothingElse) {
  for (const auto& [a_as_is, b_as_is] :
       {std::pair{Trans::kNo, Trans::kNo}, {Trans::kYes, Trans::kNo}, {Trans::kNo, Trans::kYes}}) {
    const std::int64_t m = 7, n = 33, k = 130;
    const Ts x = start({drawn({m * k}), drawn({k * n}), drawn({m * n})});
    const auto product = [&](Context& ctx, const Tensor& a, const Tensor& b) {
      Tensor c(x[2].shape());
      std::ranges::copy(x[2].host(), c.host_out().begin());
      if (ctx.device().is_host())
        ops::cpu::gemm(ctx, a_as_is, b_as_is, m, n, k, 0.5f, a, b, 2, c);
      else
        ops::cuda::gemm(ctx, a_as_is, b_as_is, m, n, k, 0.5f, a, b, 2, c);
      return c;
    };
    Ts got, want, exact;
    got.push_back(product(gpu_, x[0], x[1]));
    want.push_back(product(cpu_, rounded(x[0], precision()), rounded(x[1], precision())));
    exact.push_back(product(cpu_, x[0], x[1]));
    EXPECT_EQ("", difference(got, want, kRounding));
    EXPECT_NE("", difference(got, exact, 1e-4));
  }
}

// Results of cuDNN are rounded too.
TEST_P(ShortFloats, AConvolutionIsThatOfRoundedNumbers) {
  const double tolerance = precision() == Precision::kBfloat16 ? 0x1p-8 : 0x1p-11;
  for (const ops::ConvDesc& desc : {ops::ConvDesc{2, 3, 4, 1, {axis(7, 3, 1, 1), axis(6, 3, 1, 1)}},
                                    {3, 4, 6, 2, {axis(9, 3, 2, 1), axis(8, 5, 3, 2)}},
                                    {2, 6, 9, 1, {axis(5, 3), axis(4, 2), axis(6, 3)}}})
    for (const ops::ConvImpl* impl : {&ops::cuda::kConv, &ops::cuda::kConvCudnn}) {
      if (!impl->supports(desc, gpu_).empty()) continue;
      SCOPED_TRACE(impl->name);
      const Shape x{desc.images * desc.channels * desc.in_count()},
          w{desc.outputs * desc.channels / desc.groups * desc.taps()},
          y{desc.images * desc.outputs * desc.out_count()}, b{desc.outputs};
      const auto pass = [&](ops::ConvKernel& kernel, Context& ctx, bool round) {
        const Ts in = start({drawn(x), drawn(w), drawn(b), drawn(y)});
        Ts out = start({blank(y), blank(x), drawn(w), drawn(b)});
        const auto as = [&](const Tensor& one) { return rounded(one, precision()); };
        if (!round) {
          kernel.forward(ctx, in[0], in[1], &in[2], out[0]);
          kernel.backward(ctx, in[0], in[1], in[3], &out[1], &out[2], &out[3]);
          return out;
        }
        kernel.forward(ctx, as(in[0]), as(in[1]), &in[2], out[0]);
        kernel.backward(ctx, as(in[0]), as(in[1]), as(in[3]), &out[1], &out[2], nullptr);
        kernel.backward(ctx, in[0], in[1], in[3], nullptr, nullptr, &out[3]);
        return out;
      };
      const auto cpus = ops::cpu::kConv.make(desc, cpu_);
      const Ts want = pass(*cpus, cpu_, true), exact = pass(*cpus, cpu_, false);
      const Ts got = pass(*impl->make(desc, gpu_), gpu_, false);
      const bool rounds_results = impl == &ops::cuda::kConvCudnn;
      EXPECT_EQ("", difference(got, want, rounds_results ? tolerance : 4 * kRounding));
      EXPECT_NE("", difference(got, exact, 1e-5));
    }
}

std::string name_of(const testing::TestParamInfo<ShortFloats::ParamType>& param) {
  return (std::get<0>(param.param) == &fake_gpu() ? "fake_gpu_" : "gpu_") +
         std::string(std::get<1>(param.param) == Precision::kBfloat16 ? "bfloat16" : "float16");
}
INSTANTIATE_TEST_SUITE_P(On, ShortFloats,
                         testing::Combine(testing::ValuesIn(cuda_devices()),
                                          testing::Values(Precision::kBfloat16,
                                                          Precision::kFloat16)),
                         name_of);

}  // namespace
}  // namespace shoal::test::short_floats_test
