// Our own kernels of a CUDA device beside the CPU's plain ones.
#include <gtest/gtest.h>

#include "cuda/both_devices.h"
#include "cuda/devices.h"
#include "shoal/ops/backend.h"
#include "shoal/ops/cuda/device_layout.h"
#include "support/ops.h"

namespace shoal::test::cuda_kernels_test {
namespace {

using Numbers = Start::Numbers;
using ops::axis;

class CudaKernels : public OnCudaDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaKernels, testing::ValuesIn(cuda_devices()), cuda_device_name);

// The kernel that serves every description.
auto plain(auto list, const auto& desc, Context& ctx) {
  return (ops::backend(ctx).*list).back()->make(desc, ctx);
}

TEST_P(CudaKernels, Im2colIsTheCpus) {
  for (const ops::ConvDesc& desc :
       {ops::ConvDesc{2, 3, 1, 1, {axis(7, 3, 1, 1), axis(6, 2, 2)}},
        {1, 2, 1, 1, {axis(11, 3, 2, 2, 2), axis(5, 5, 1, 4)}},
        {2, 2, 1, 1, {axis(9, 4, 3, 1)}},
        {2, 2, 1, 1, {axis(4, 2), axis(5, 3, 1, 1), axis(6, 2, 2, 0, 2)}}}) {
    const Shape x{desc.images, desc.channels, desc.in_count()};
    const Shape y{desc.images, desc.channels * desc.taps(), desc.out_count()};
    expect_same({{"im2col",
                  {odd(x), blank(y)},
                  [=](Context& ctx, Ts& t) {
                    plain(&ops::Backend::im2col, desc, ctx)->forward(ctx, t[0], t[1]);
                  }},
                 {"im2col, backward",
                  {drawn(y), blank(x)},
                  [=](Context& ctx, Ts& t) {
                    plain(&ops::Backend::im2col, desc, ctx)->backward(ctx, t[0], t[1]);
                  },
                  kRounding}});
  }
}

// The axis of a pooling whose last window may hang over the end, as Caffe has them.
ops::WindowAxis pooled(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                       std::int64_t pad) {
  return {in, out, kernel, stride, pad, 1};
}

TEST_P(CudaKernels, PoolingIsTheCpus) {
  using Method = ops::PoolDesc::Method;
  const Random::State coins{7, 8, 9};
  const std::pair<ops::WindowAxis, ops::WindowAxis> windows[] = {
      {pooled(7, 3, 3, 2, 0), pooled(9, 4, 3, 2, 0)},
      {pooled(8, 4, 3, 2, 0), pooled(6, 3, 2, 2, 0)},
      {pooled(5, 5, 3, 1, 1), pooled(6, 6, 3, 1, 1)},
      {pooled(7, 1, 7, 1, 0), pooled(7, 1, 7, 1, 0)},
      {pooled(5, 4, 2, 2, 1), pooled(4, 3, 3, 2, 1)},
      {pooled(9, 3, 2, 4, 0), pooled(10, 2, 3, 5, 1)},
      {pooled(2, 5, 3, 2, 2), pooled(3, 6, 2, 1, 1)},      // some windows lie outside
      {pooled(16, 2, 15, 1, 0), pooled(18, 2, 17, 1, 0)},  // winners in a byte, just
      {pooled(17, 2, 16, 1, 0), pooled(16, 3, 16, 1, 1)},  // and just not
  };
  for (const auto& [height, width] : windows)
    for (const Method method :
         {Method::kMax, Method::kAverage, Method::kSampled, Method::kExpected})
      for (const bool keeps : {false, true}) {
        const ops::PoolDesc desc{method, 3, height, width, keeps && method == Method::kMax};
        SCOPED_TRACE(str(height.in, " x ", width.in, ", method ", static_cast<int>(method),
                         desc.keeps_winners ? ", keeps winners" : ""));
        const Shape x{3, height.in, width.in}, y{3, height.out, width.out};
        const auto run = [=](Context& ctx, Ts& t) {
          const auto kernel = plain(&ops::Backend::pool, desc, ctx);
          kernel->forward(ctx, t[0], t[1], method == Method::kMax ? &t[2] : nullptr, coins);
          kernel->backward(ctx, t[0], t[3], t[4]);
          kernel->forward(ctx, t[0], t[5], nullptr, coins);
        };
        for (const Start& in : {ties(x), drawn(x), odd(x)})
          expect_same({{"pooling",
                        {in, blank(y), blank(y), drawn(y), blank(x), blank(y)},
                        run,
                        method == Method::kMax ? 0 : kRounding}});
      }
}

TEST_P(CudaKernels, LrnIsTheCpus) {
  using Region = ops::LrnDesc::Region;
  for (const Region region : {Region::kAcross, Region::kWithin})
    for (const float beta : {0.75f, 0.5f, 1.0f, 0.6f})
      for (const std::int64_t size : {1, 3, 5, 9}) {
        const ops::LrnDesc desc{region, 2, 6, 5, 7, size, 1.5f, beta, 2};
        const Shape x{2, 6, 5, 7};
        const auto run = [=](Context& ctx, Ts& t) {
          const auto kernel = plain(&ops::Backend::lrn, desc, ctx);
          kernel->forward(ctx, t[0], t[1]);
          kernel->backward(ctx, t[0], t[2], t[3]);
        };
        expect_same({{str(region == Region::kAcross ? "across " : "within ", size, ", beta ", beta),
                      {drawn(x), blank(x), drawn(x), blank(x)},
                      run,
                      kRounding}});
      }
}

TEST_P(CudaKernels, BatchNormIsTheCpus) {
  for (const ops::BatchNormDesc& desc : {ops::BatchNormDesc{4, 3, 5, 1e-3f},
                                         {6, 7, 1, 1e-3f},
                                         {1, 1, 300, 1e-3f},
                                         {2, 2, 4001, 1e-3f},
                                         {2, 1500, 1, 1e-3f}}) {
    SCOPED_TRACE(str(desc.images, " x ", desc.channels, " x ", desc.inner));
    const Shape x{desc.images, desc.channels, desc.inner}, c{desc.channels};
    const auto kernel = [=](Context& ctx) { return plain(&ops::Backend::batch_norm, desc, ctx); };
    expect_same({
        {"forward_batch",
         {positive(x), blank(c), blank(c), blank(x)},
         [=](Context& ctx, Ts& t) {
           kernel(ctx)->forward_batch(ctx, t[0], t[1], t[2], {}, {}, t[3]);
         },
         2 * kRounding},
        {"in place",
         {positive(x), blank(c), blank(c)},
         [=](Context& ctx, Ts& t) {
           kernel(ctx)->forward_batch(ctx, t[0], t[1], t[2], {}, {}, t[0]);
         },
         2 * kRounding},
        {"in place, with what follows",
         {positive(x), blank(c), blank(c), drawn(c), drawn(c), blank(x), drawn(c), drawn(c),
          drawn(Shape{1})},
         [=](Context& ctx, Ts& t) {
           kernel(ctx)->forward_batch(ctx, t[0], t[1], t[2], {&t[6], &t[7], &t[8], 0.9f},
                                      {&t[3], &t[4], 0.5f, &t[5]}, t[0]);
         },
         4 * kRounding},
        {"forward_global",
         {drawn(x), drawn(c), positive(c), blank(x)},
         [=](Context& ctx, Ts& t) { kernel(ctx)->forward_global(ctx, t[0], t[1], t[2], {}, t[3]); },
         kRounding},
        {"forward_global, with what follows",
         {drawn(x), drawn(c), positive(c), drawn(c), blank(x), blank(x)},
         [=](Context& ctx, Ts& t) {
           kernel(ctx)->forward_global(ctx, t[0], t[1], t[2], {&t[3], nullptr, 0.0f, &t[4]}, t[5]);
         },
         kRounding},
        {"backward_batch",
         {drawn(x), drawn(c), positive(c), drawn(x), blank(x)},
         [=](Context& ctx, Ts& t) {
           kernel(ctx)->backward_batch(ctx, {&t[0], false}, t[1], t[2], t[3], {}, &t[4]);
           kernel(ctx)->backward_batch(ctx, {&t[0], true}, t[1], t[2], t[3], {}, &t[3]);
         },
         kRounding},
        {"backward_batch, with what follows",
         {drawn(x), drawn(c), positive(c), drawn(x), blank(x), drawn(c), drawn(c), blank(c),
          drawn(c)},
         [=](Context& ctx, Ts& t) {
           kernel(ctx)->backward_batch(
               ctx, {&t[0], false}, t[1], t[2], t[3],
               {.factor = &t[5], .g_factor = {&t[6], true}, .g_shift = {&t[7], false}}, &t[4]);
           kernel(ctx)->backward_batch(ctx, {&t[0], true}, t[1], t[2], t[3],
                                       {.factor = &t[5], .g_factor = {&t[6], true}}, nullptr);
           kernel(ctx)->backward_batch(
               ctx, {&t[0], true}, t[1], t[2], t[3],
               {.factor = &t[5], .shift = &t[8], .slope = 0.5f, .g_factor = {&t[6], true}}, &t[3]);
         },
         4 * kRounding},
        {"backward_global",
         {drawn(c), positive(c), drawn(x), blank(x), drawn(x), drawn(c), drawn(c), blank(c)},
         [=](Context& ctx, Ts& t) {
           kernel(ctx)->backward_global(ctx, {}, t[0], t[1], t[2], {}, &t[3]);
           kernel(ctx)->backward_global(
               ctx, {&t[4], true}, t[0], t[1], t[2],
               {.factor = &t[5], .g_factor = {&t[6], true}, .g_shift = {&t[7], false}}, &t[2]);
         },
         kRounding},
    });
  }
}

// ---- what a convolution leaves with channels last ----

TEST_P(CudaKernels, PoolingKeepsChannelsLast) {
  using Method = ops::PoolDesc::Method;
  for (const int channels : {5, 16})
    for (const Method method : {Method::kMax, Method::kAverage})
      for (const bool keeps : {false, true})
        for (const ops::WindowAxis& axis : {pooled(7, 3, 3, 2, 0), pooled(7, 1, 7, 1, 0)}) {
          const ops::PoolDesc desc{method, 2 * channels, axis, axis,
                                   keeps && method == Method::kMax};
          const Shape x{2, channels, 7, 7}, y{2, channels, axis.out, axis.out};
          const std::int64_t out = axis.out * axis.out;
          const auto run = [=](Context& ctx, Ts& t) {
            const auto kernel = plain(&ops::Backend::pool, desc, ctx);
            put_channels_last(ctx, t[0], channels, 49);
            kernel->forward(ctx, t[0], t[1], method == Method::kMax ? &t[2] : nullptr, {});
            expect_channels_last(ctx, t[1], channels, out);
            // Winners are places, which 16 bits would not hold.
            if (method == Method::kMax && !ctx.device().is_host()) {
              EXPECT_TRUE(same_layout(t[2].layout(), ops::cuda::channels_last(channels, out)));
            }
            kernel->backward(ctx, t[0], t[3], t[4]);
            expect_channels_last(ctx, t[4], channels, 49);
          };
          expect_same_in_all_types({{method == Method::kMax ? "max" : "average",
                                     {ties(x), blank(y), blank(y), drawn(y), blank(x)},
                                     run,
                                     kRounding}});
        }
}

// Numbers of 16 bits in plain order, or the gradient alone.
TEST_P(CudaKernels, LrnTakesPlainOrder) {
  constexpr int kChannels = 11;
  const Shape x{2, kChannels, 5, 7};
  using Region = ops::LrnDesc::Region;
  for (const Region region : {Region::kAcross, Region::kWithin})
    for (const int channels : {1, kChannels})
      expect_same_in_all_types({{str(region == Region::kAcross ? "LRN across, " : "LRN within, ",
                                     channels == 1 ? "plain" : "its gradient plain"),
                                 {drawn(x), blank(x), drawn(x), blank(x)},
                                 [=](Context& ctx, Ts& t) {
                                   const ops::LrnDesc desc{region, 2,    kChannels, 5, 7,
                                                           5,      1.5f, 0.75f,     2};
                                   const auto kernel = plain(&ops::Backend::lrn, desc, ctx);
                                   put_channels_last(ctx, t[0], channels, channels == 1 ? 1 : 35);
                                   put_channels_last(ctx, t[2], 1, 1);
                                   kernel->forward(ctx, t[0], t[1]);
                                   kernel->backward(ctx, t[0], t[2], t[3]);
                                 },
                                 kRounding}});
}

TEST_P(CudaKernels, NormalizationsKeepChannelsLast) {
  for (const int channels : {11, 16}) {
    const Shape x{2, channels, 5, 7}, c{channels};
    const auto last = [=](Context& ctx, Tensor& t) { put_channels_last(ctx, t, channels, 35); };
    const auto expect_last = [=](Context& ctx, const Tensor& t) {
      expect_channels_last(ctx, t, channels, 35);
    };
    using Region = ops::LrnDesc::Region;
    for (const Region region : {Region::kAcross, Region::kWithin})
      expect_same_in_all_types({{region == Region::kAcross ? "LRN across" : "LRN within",
                                 {drawn(x), blank(x), drawn(x), blank(x)},
                                 [=](Context& ctx, Ts& t) {
                                   const ops::LrnDesc desc{region, 2,    channels, 5, 7,
                                                           5,      1.5f, 0.75f,    2};
                                   const auto kernel = plain(&ops::Backend::lrn, desc, ctx);
                                   last(ctx, t[0]);
                                   last(ctx, t[2]);
                                   kernel->forward(ctx, t[0], t[1]);
                                   expect_last(ctx, t[1]);
                                   kernel->backward(ctx, t[0], t[2], t[3]);
                                   expect_last(ctx, t[3]);
                                 },
                                 kRounding}});
    const ops::BatchNormDesc desc{2, channels, 35, 1e-3f};
    expect_same_in_all_types(
        {{"batch normalization",
          {positive(x), blank(c), blank(c), blank(x), drawn(x), blank(x), blank(x), blank(x),
           drawn(c), drawn(c), blank(x)},
          [=](Context& ctx, Ts& t) {
            const auto kernel = plain(&ops::Backend::batch_norm, desc, ctx);
            last(ctx, t[0]);
            last(ctx, t[4]);
            kernel->forward_batch(ctx, t[0], t[1], t[2], {}, {nullptr, nullptr, {}, &t[7]}, t[3]);
            kernel->backward_batch(ctx, {&t[0], false}, t[1], t[2], t[4], {}, &t[5]);
            kernel->backward_batch(ctx, {&t[0], false}, t[1], t[2], t[4],
                                   {.factor = &t[8], .shift = &t[9], .slope = 0.25f}, &t[10]);
            kernel->backward_global(ctx, {}, t[1], t[2], t[4], {}, &t[6]);
            kernel->forward_global(ctx, t[0], t[1], t[2], {}, t[0]);
            for (const int i : {0, 3, 5, 6, 7, 10})
              expect_last(ctx, t[static_cast<std::size_t>(i)]);
          },
          4 * kRounding}});
    const ops::BroadcastDims dims{2, channels, 35};
    expect_same_in_all_types(
        {{"a ReLU and a bias",
          {drawn(x), drawn(x), drawn(c)},
          [=](Context& ctx, Ts& t) {
            last(ctx, t[0]);
            last(ctx, t[1]);
            if (!ops::relu_and_bias_gradient(ctx, 0.25f, channels, 35, t[0], t[1], &t[2]))
              ops::add_bias_gradient(ctx, channels, 35, t[1], t[2]);
            expect_last(ctx, t[1]);
          },
          kRounding}});
    expect_same_in_all_types(
        {{"scale",
          {positive(x), drawn(c), drawn(c), blank(x), positive(x), blank(x), drawn(c), blank(c),
           blank(x), blank(x)},
          [=](Context& ctx, Ts& t) {
            last(ctx, t[0]);
            last(ctx, t[4]);
            ops::scale_and_shift(ctx, dims, t[0], t[1], &t[2], t[3]);
            ops::scale_backward(ctx, dims, t[4], t[0], t[1], &t[5], {&t[6], true}, {&t[7]});
            ops::add_bias(ctx, channels, 35, t[2], t[4]);
            ops::prelu(ctx, t[0], t[1], 35, t[8]);
            ops::prelu_backward(ctx, t[0], t[1], 35, t[4], t[9]);
            ops::prelu_slope_backward(ctx, t[0], 35, t[4], t[6]);
            ops::shift(ctx, dims, t[0], t[1], t[0]);
            for (const int i : {0, 3, 4, 5, 8, 9}) expect_last(ctx, t[static_cast<std::size_t>(i)]);
          },
          kRounding}});
  }
}

TEST_P(CudaKernels, SoftmaxIsTheCpus) {
  for (const ops::SoftmaxDesc& desc : {ops::SoftmaxDesc{40, 10, 1},
                                       {2, 200, 1},
                                       {3, 5, 7},
                                       {2, 21, 300},
                                       {3, 1, 1},
                                       {2, 200, 3}}) {
    const Shape x{desc.outer, desc.channels, desc.inner};
    const auto run = [=](Context& ctx, Ts& t) {
      const auto kernel = plain(&ops::Backend::softmax, desc, ctx);
      kernel->forward(ctx, t[0], t[1]);
      kernel->backward(ctx, t[1], t[2], t[3]);
      kernel->forward(ctx, t[0], t[0]);
      kernel->backward(ctx, t[1], t[2], t[2]);
    };
    for (const Start& in : {drawn(x), odd(x)})
      expect_same({{str(desc.outer, " x ", desc.channels, " x ", desc.inner),
                    {in, blank(x), drawn(x), blank(x)},
                    run,
                    kRounding}});
  }
}

}  // namespace
}  // namespace shoal::test::cuda_kernels_test
