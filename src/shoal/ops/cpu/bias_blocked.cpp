#include "shoal/ops/cpu/bias_blocked.h"

#include <algorithm>

#include "shoal/ops/cpu/blocks.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {

void add_bias_to_blocks(Context& ctx, const Tensor& b, Tensor& y) {
  const LayoutPtr layout = y.layout();
  const BlockedChannels& lies = *as_blocked(layout);
  const float* const bias = b.in();
  std::byte* const out = y.mut(ctx, layout);
  with_blocks(lies, [&](auto block, auto one) {
    constexpr int kBlock = decltype(block)::value;
    using N = decltype(one);
    const std::int64_t plane = lies.inner * kBlock,
                       planes = y.count() / (lies.channels * lies.inner) * lies.blocks();
    parallel_for(ctx.threads(), planes, grain_of(plane),
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t p = begin; p < end; ++p) {
                     typename BlockOf<kBlock>::Floats more{};
                     const std::int64_t first = p % lies.blocks() * kBlock;
                     for (int lane = 0; lane < kBlock && first + lane < lies.channels; ++lane)
                       more[lane] = bias[first + lane];
                     N* const to = numbers<N>(out) + p * plane;
                     for (std::int64_t i = 0; i < plane; i += kBlock)
                       store_block<kBlock>(load_block<kBlock>(to + i) + more, to + i);
                   }
                 });
  });
}

void add_bias_gradient_of_blocks(Context& ctx, const Tensor& dy, Tensor& db) {
  const LayoutPtr layout = dy.layout();
  const BlockedChannels& lies = *as_blocked(layout);
  const std::byte* const in = dy.read(ctx, layout);
  float* const sums = db.mut();
  with_blocks(lies, [&](auto block, auto one) {
    constexpr int kBlock = decltype(block)::value;
    using N = decltype(one);
    const std::int64_t plane = lies.inner * kBlock,
                       images = dy.count() / (lies.channels * lies.inner);
    parallel_for(ctx.threads(), lies.blocks(), grain_of(images * plane),
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t b = begin; b < end; ++b)
                     for (std::int64_t n = 0; n < images; ++n) {
                       typename BlockOf<kBlock>::Floats sum{};
                       const N* const from = numbers<N>(in) + (n * lies.blocks() + b) * plane;
                       for (std::int64_t i = 0; i < plane; i += kBlock)
                         sum += load_block<kBlock>(from + i);
                       const std::int64_t first = b * kBlock;
                       for (int lane = 0; lane < kBlock && first + lane < lies.channels; ++lane)
                         sums[first + lane] += sum[lane];
                     }
                 });
  });
}

}  // namespace shoal::ops::cpu
