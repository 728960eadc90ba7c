// LRN within each plane of images in blocks of channels.
#include <algorithm>

#include "shoal/ops/cpu/blocks.h"
#include "shoal/ops/cpu/lrn_blocked.h"
#include "shoal/ops/cpu/lrn_power.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {

BlockedLrnWithin::BlockedLrnWithin(const LrnDesc& desc)
    : desc_(desc),
      places_(desc.height * desc.width),
      ratio_(desc.alpha / static_cast<float>(desc.size * desc.size)) {}

std::int64_t BlockedLrnWithin::room() const {
  constexpr std::int64_t kWidestBlock = 16;
  return 3 * places_ * kWidestBlock;
}

// Calls work(the plane's first number, room for three planes) for each plane of blocks.
template <class Work>
void BlockedLrnWithin::each_plane(Context& ctx, const BlockedChannels& layout,
                                  const Work& work) const {
  float* const scratch = ctx.scratch(ctx.threads() * room()).data();
  const std::int64_t numbers = places_ * layout.block;
  parallel_for(ctx.threads(), desc_.images * layout.blocks(), grain_of(8 * numbers),
               [&](int thread, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t plane = begin; plane < end; ++plane)
                   work(plane * numbers, scratch + thread * room());
               });
}

// Sums over the window around each place, first along rows into `rows`, then along columns.
template <int kBlock>
void BlockedLrnWithin::box(const float* in, float* rows, float* out) const {
  const std::int64_t reach = desc_.size / 2, height = desc_.height, width = desc_.width;
  using Floats = typename BlockOf<kBlock>::Floats;
  const auto sum_along = [&](const float* from, float* to, std::int64_t length, std::int64_t at,
                             std::int64_t step) {
    Floats sum{};
    const std::int64_t last = std::min(length - 1, at + reach);
    for (std::int64_t i = std::max<std::int64_t>(0, at - reach); i <= last; ++i)
      sum += load_block<kBlock>(from + (i - at) * step);
    store_block<kBlock>(sum, to);
  };
  for (std::int64_t h = 0; h < height; ++h)
    for (std::int64_t w = 0; w < width; ++w) {
      const std::int64_t place = (h * width + w) * kBlock;
      sum_along(in + place, rows + place, width, w, kBlock);
    }
  for (std::int64_t h = 0; h < height; ++h)
    for (std::int64_t w = 0; w < width; ++w) {
      const std::int64_t place = (h * width + w) * kBlock;
      sum_along(rows + place, out + place, height, h, width * kBlock);
    }
}

void BlockedLrnWithin::forward(Context& ctx, const Tensor& x, Tensor& y) const {
  const LayoutPtr layout = x.layout();
  const BlockedChannels& lies = *as_blocked(layout);
  const std::byte* const in = x.read(ctx, layout);
  std::byte* const out = y.write(ctx, layout);
  with_power(desc_.beta, [&](auto power) {
    with_blocks(lies, [&](auto block, auto one) {
      constexpr int kBlock = decltype(block)::value;
      using N = decltype(one);
      const std::int64_t count = places_ * kBlock;
      each_plane(ctx, lies, [&](std::int64_t first, float* room) {
        const N* const from = numbers<N>(in) + first;
        N* const to = numbers<N>(out) + first;
        float* const s = room + 2 * count;
        for (std::int64_t i = 0; i < count; ++i) room[i] = value(from[i]) * value(from[i]);
        box<kBlock>(room, room + count, s);
        for (std::int64_t i = 0; i < count; ++i)
          to[i] = number<N>(value(from[i]) * power(1 + ratio_ * s[i]));
      });
    });
  });
}

void BlockedLrnWithin::backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) const {
  const LayoutPtr layout = x.layout();
  const BlockedChannels& lies = *as_blocked(layout);
  const std::byte *const in = x.read(ctx, layout), *const slope = dy.read(ctx, layout);
  std::byte* const out = dx.write(ctx, layout);
  const float factor = 2 * ratio_ * desc_.beta;
  with_power(desc_.beta, [&](auto power) {
    with_blocks(lies, [&](auto block, auto one) {
      constexpr int kBlock = decltype(block)::value;
      using N = decltype(one);
      const std::int64_t count = places_ * kBlock;
      each_plane(ctx, lies, [&](std::int64_t first, float* room) {
        const N *const from = numbers<N>(in) + first, *const above = numbers<N>(slope) + first;
        N* const to = numbers<N>(out) + first;
        float* const direct = room + 2 * count;
        for (std::int64_t i = 0; i < count; ++i) room[i] = value(from[i]) * value(from[i]);
        box<kBlock>(room, room + count, direct);
        for (std::int64_t i = 0; i < count; ++i) {
          const float s = 1 + ratio_ * direct[i];
          direct[i] = value(above[i]) * power(s);
          room[i] = direct[i] * value(from[i]) / s;
        }
        // The sums over windows take the place of what they were made of.
        box<kBlock>(room, room + count, room);
        for (std::int64_t i = 0; i < count; ++i)
          to[i] = number<N>(direct[i] - factor * value(from[i]) * room[i]);
      });
    });
  });
}

}  // namespace shoal::ops::cpu
