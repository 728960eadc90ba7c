// The bias of products and convolutions: its sum and its gradient.
#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/blocks.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/gemm.h"

namespace shoal::ops::cpu {
namespace {

// Adds the bias to a y that lies in blocks of channels.
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

// Sums a dy that lies in blocks.
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

}  // namespace

void add_bias(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& b, Tensor& y) {
  const std::int64_t rows = y.count() / std::max<std::int64_t>(1, inner);
  CHECK(b.count() == channels && rows * inner == y.count() && rows % channels == 0)
      << b.shape().str() << " onto " << y.shape().str();
  if (as_blocked(y.layout(), channels, inner) != nullptr) return add_bias_to_blocks(ctx, b, y);
  const float* bias = b.in();
  float* out = y.mut();
  // The unit is then a row of `channels` numbers, else one channel's `inner` numbers.
  const bool per_number = inner == 1;
  const std::int64_t units = per_number ? rows / channels : rows,
                     width = per_number ? channels : inner;
  parallel_for(ctx.threads(), units, grain_of(width),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t u = begin; u < end; ++u) {
                   float* row = out + u * width;
                   const float value = per_number ? 0 : bias[u % channels];
                   if (per_number)
                     for (std::int64_t i = 0; i < width; ++i) row[i] += bias[i];
                   else
                     for (std::int64_t i = 0; i < width; ++i) row[i] += value;
                 }
               });
}

void add_bias_gradient(Context& ctx, std::int64_t channels, std::int64_t inner, const Tensor& dy,
                       Tensor& db) {
  const std::int64_t outer = dy.count() / std::max<std::int64_t>(1, channels * inner);
  CHECK(db.count() == channels && outer * channels * inner == dy.count())
      << dy.shape().str() << " onto " << db.shape().str();
  if (as_blocked(dy.layout(), channels, inner) != nullptr)
    return add_bias_gradient_of_blocks(ctx, dy, db);
  const float* in = dy.in();
  float* sums = db.mut();
  parallel_for(ctx.threads(), channels, grain_of(outer * inner),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t n = 0; n < outer; ++n) {
                   const float* image = in + n * channels * inner;
                   if (inner == 1)
                     for (std::int64_t c = begin; c < end; ++c) sums[c] += image[c];
                   else
                     for (std::int64_t c = begin; c < end; ++c)
                       sums[c] += sum(image + c * inner, inner);
                 }
               });
}

}  // namespace shoal::ops::cpu
