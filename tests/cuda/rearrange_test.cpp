// The ops that move numbers about, on a CUDA device beside the CPU's.
#include "shoal/ops/rearrange.h"

#include <gtest/gtest.h>

#include "cuda/both_devices.h"
#include "cuda/devices.h"

namespace shoal::test::cuda_rearrange_test {
namespace {

using Numbers = Start::Numbers;

class CudaRearrange : public OnCudaDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaRearrange, testing::ValuesIn(cuda_devices()),
                         cuda_device_name);

TEST_P(CudaRearrange, IsTheCpus) {
  const std::int64_t sizes[] = {3, 1, 4, 5}, steps[] = {20, 7, 1, 4}, repeats[] = {1, 0, 0, 3};
  const Start mask{{2, 30}, Numbers::kWhole, 70};  // of 64 places: some lie outside
  const ops::InterpolatedAxis rows{.size = 9, .cut = 1, .in = 7, .out = 4},
      columns{.size = 3, .cut = 0, .in = 3, .out = 11}, one{.size = 3, .in = 3, .out = 1};
  expect_same({
      {"rearrange",
       {odd({60}), blank({60}), blank({60})},
       [&](Context& ctx, Ts& t) {
         ops::rearrange(ctx, t[0], sizes, steps, t[1]);
         ops::rearrange(ctx, t[0], sizes, repeats, t[2]);
       }},
      {"spread",
       {drawn({2, 30}), mask, blank({2, 64}), blank({1})},
       [](Context& ctx, Ts& t) { ops::spread(ctx, 2, t[0], t[1], t[2], t[3]); }},
      {"gather",
       {drawn({2, 64}), mask, blank({2, 30})},
       [](Context& ctx, Ts& t) { ops::gather(ctx, 2, t[0], t[1], t[2]); }},
      {"interpolate",
       {drawn({5, 9, 3}), blank({5, 4, 11}), blank({5, 4, 1})},
       [&](Context& ctx, Ts& t) {
         ops::interpolate(ctx, rows, columns, t[0], t[1]);
         ops::interpolate(ctx, rows, one, t[0], t[2]);
       },
       kRounding},
      {"interpolate_backward",
       {drawn({5, 4, 11}), blank({5, 9, 3}), drawn({5, 4, 1}), blank({5, 9, 3})},
       [&](Context& ctx, Ts& t) {
         ops::interpolate_backward(ctx, rows, columns, t[0], t[1]);
         ops::interpolate_backward(ctx, rows, one, t[2], t[3]);
       },
       kRounding},
  });
}

}  // namespace
}  // namespace shoal::test::cuda_rearrange_test
