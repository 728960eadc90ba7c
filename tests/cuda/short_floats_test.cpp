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
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/impls.h"
#include "support/ops.h"

namespace shoal::test::short_floats_test {
namespace {

using ops::axis, ops::Trans;

Tensor rounded(const Tensor& x, Precision precision) {
  Tensor y(x.shape());
  std::ranges::transform(x.host(), y.host_out().begin(),
                         [&](float one) { return test::rounded(one, precision); });
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
    const std::int64_t m = 1024, n = 1001, k = 6;
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

// Rounding its matrices would take longer than it saves.
TEST_P(ShortFloats, AProductOfFewRowsIsInTf32) {
  const std::int64_t m = 16, n = 33, k = 130;
  const Ts x = start({drawn({m * k}), drawn({k * n})});
  const auto product = [&](Context& ctx, const Tensor& a, const Tensor& b) {
    Tensor c(Shape{m * n});
    if (ctx.device().is_host())
      ops::cpu::gemm(ctx, ops::Trans::kNo, ops::Trans::kNo, m, n, k, 1, a, b, 0, c);
    else
      ops::cuda::gemm(ctx, ops::Trans::kNo, ops::Trans::kNo, m, n, k, 1, a, b, 0, c);
    return c;
  };
  Ts got, exact, rounds;
  got.push_back(product(gpu_, x[0], x[1]));
  exact.push_back(product(cpu_, x[0], x[1]));
  rounds.push_back(product(cpu_, rounded(x[0], precision()), rounded(x[1], precision())));
  EXPECT_EQ("", difference(got, exact, 0x1p-11));
  if (precision() == Precision::kBfloat16) {
    EXPECT_NE("", difference(got, rounds, kRounding));
  }
}

// cuDNN's results are rounded, too, and those of forward again when the bias is added.
TEST_P(ShortFloats, AConvolutionIsThatOfRoundedNumbers) {
  const double tolerance = precision() == Precision::kBfloat16 ? 0x1p-8 : 0x1p-11;
  for (const ops::ConvDesc& desc :
       ops::with_overwriting<ops::ConvDesc>({{2, 3, 4, 1, {axis(7, 3, 1, 1), axis(6, 3, 1, 1)}},
                                             {3, 4, 6, 2, {axis(9, 3, 2, 1), axis(8, 5, 3, 2)}},
                                             {2, 6, 9, 1, {axis(5, 3), axis(4, 2), axis(6, 3)}}}))
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
          if (desc.overwrites_dw)
            kernel.backward(ctx, in[0], in[1], in[3], nullptr, &out[2], nullptr);
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
      if (impl == &ops::cuda::kConvCudnn) {  // y and dx stay as it leaves them
        EXPECT_EQ(ops::cuda::type_of(got[0].layout()), ops::cuda::input_type(precision()));
        EXPECT_EQ(ops::cuda::type_of(got[1].layout()), ops::cuda::input_type(precision()));
      }
      // Our own makes products, which choose how to round.
      EXPECT_EQ("", difference(got, impl == &ops::cuda::kConvCudnn ? want : exact, 2 * tolerance));
      if (impl == &ops::cuda::kConvCudnn) {
        EXPECT_NE("", difference(got, exact, 1e-5));
      }
    }
}

// A product's bottom may be of 16 bits; its gradient is then, too. All else stays float32.
TEST_P(ShortFloats, ADenseLayerTakesTheTypeOfItsBottom) {
  const ops::DenseDesc desc{5, 24, 7, false};
  const auto cpus = ops::cpu::kDense.make(desc, cpu_), own = ops::cuda::kDense.make(desc, gpu_);
  const auto type = ops::cuda::input_type(precision());
  const auto pass = [&](ops::DenseKernel& kernel, Context& ctx, bool on_gpu) {
    Ts t = start({drawn({5, 24}), drawn({7, 24}), drawn({7}), drawn({5, 7}), blank({5, 7}),
                  blank({5, 24}), drawn({7, 24}), drawn({7})});
    for (Tensor* one : {&t[0], &t[1], &t[3]}) *one = rounded(*one, precision());
    if (on_gpu) t[0].mut(ctx, ops::cuda::channels_last(4, 6, type));
    kernel.forward(ctx, t[0], t[1], &t[2], t[4]);
    kernel.backward(ctx, t[0], t[1], t[3], &t[5], &t[6], &t[7]);
    return t;
  };
  const Ts want = pass(*cpus, cpu_, false), got = pass(*own, gpu_, true);
  for (const std::size_t i : {0, 5}) EXPECT_EQ(ops::cuda::type_of(got[i].layout()), type);
  for (const std::size_t i : {1, 4, 6}) EXPECT_EQ(got[i].layout(), nullptr);
  EXPECT_EQ("", difference(got, want, precision() == Precision::kBfloat16 ? 0x1p-8 : 0x1p-11));
  Ts exact, of_16_bits;  // only the bottom's gradient is rounded
  for (const std::size_t i : {4, 6, 7}) {
    exact.push_back(rounded(want[i], Precision::kFloat32));
    of_16_bits.push_back(rounded(got[i], Precision::kFloat32));
  }
  EXPECT_EQ("", difference(of_16_bits, exact, 4 * kRounding));
}

// Numbers go between any two layouts, without a look at the host where one of them is in plain
// order or both have the same.
TEST_P(ShortFloats, NumbersStayThemselvesInEveryLayout) {
  using ops::cuda::channels_last, ops::cuda::ElementType;
  const auto type = ops::cuda::input_type(precision());
  const LayoutPtr layouts[] = {nullptr, channels_last(5, 33, ElementType::kFloat32),
                               channels_last(5, 33, type), channels_last(3, 55, type),
                               ops::cuda::plain_order(type)};
  for (const LayoutPtr& first : layouts)
    for (const LayoutPtr& second : layouts) {
      Ts t = start({ties({2, 5, 3, 11})});
      const Tensor want = rounded(t[0], Precision::kFloat32);
      t[0].mut(gpu_, first);
      const Conversions before = gpu_.stream()->conversions;
      t[0].mut(gpu_, second);
      const Conversions after = gpu_.stream()->conversions;
      const bool same = same_layout(first, second);
      const auto *const a = ops::cuda::as_channels_last(first), *const b =
                                                                    ops::cuda::as_channels_last(
                                                                        second);
      const bool far = a != nullptr && b != nullptr && a->channels != b->channels;
      EXPECT_EQ(after.downloads - before.downloads, far ? 1 : 0);
      EXPECT_EQ(after.reorders - before.reorders, same ? 0 : far ? 2 : 1);
      EXPECT_TRUE(std::ranges::equal(t[0].host(), want.host()));
    }
}

// A view of another shape sees the same numbers, without a conversion.
TEST_P(ShortFloats, ALayoutServesEveryShape) {
  const LayoutPtr layout = ops::cuda::channels_last(5, 6, ops::cuda::input_type(precision()));
  Ts t = start({ties({4, 5, 6})});
  const Tensor want = rounded(t[0], Precision::kFloat32);
  Tensor flat(Shape{4, 30});
  flat.share(t[0]);
  t[0].mut(gpu_, layout);
  const Conversions before = gpu_.stream()->conversions;
  flat.mut(gpu_, layout);
  EXPECT_TRUE(gpu_.stream()->conversions == before);
  EXPECT_TRUE(std::ranges::equal(flat.host(), want.host()));
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
