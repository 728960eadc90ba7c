// LRN across the channels of images in blocks of channels.
#include "shoal/ops/cpu/lrn_blocked.h"

#include <algorithm>

#include "shoal/ops/cpu/blocks.h"
#include "shoal/ops/cpu/lrn_power.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

// Places that are worked on together: a row of channels is long written when its neighbours are
// read, and all rows stay in the first cache.
constexpr std::int64_t kPlaces = 8;
constexpr std::int64_t kMargin = 16;  // floats beside a row; a multiple of each block

// The places of one strip of an image, as rows of channels side by side. A row has zeros on both
// sides, as far as a window may reach.
template <int kBlock, class N>
class Strip {
 public:
  Strip(const N* image, std::int64_t blocks, std::int64_t inner, std::int64_t places)
      : image_(image), blocks_(blocks), step_(inner * kBlock), places_(places) {}

  // Calls f(place p, block b, offset of the channels of b at p) for each place and block.
  template <class F>
  void each(F f) const {
    for (std::int64_t p = 0; p < places_; ++p)
      for (std::int64_t b = 0; b < blocks_; ++b) f(p, b, b * step_ + p * kBlock);
  }
  auto at(std::int64_t offset) const { return load_block<kBlock>(image_ + offset); }

 private:
  const N* image_;
  std::int64_t blocks_, step_, places_;
};

// The sum of the numbers from `reach` before to `reach` behind each of a block's.
template <int kBlock>
auto window_sum(const float* middle, std::int64_t reach) {
  auto sum = load_block<kBlock>(middle - reach);
  for (std::int64_t d = 1 - reach; d <= reach; ++d) sum += load_block<kBlock>(middle + d);
  return sum;
}

// The numbers of block `b` that are raised to a power, whose squares are at `middle`: 1 where there
// is no channel, lest a k of 0 makes the layout's padding NaN.
template <int kBlock>
auto base_of(const LrnDesc& desc, float ratio, const float* middle, std::int64_t b) {
  auto base = desc.k + ratio * window_sum<kBlock>(middle, desc.size / 2);
  const std::int64_t lanes = std::min<std::int64_t>(kBlock, desc.channels - b * kBlock);
  for (auto lane = static_cast<int>(lanes); lane < kBlock; ++lane) base[lane] = 1;
  return base;
}

}  // namespace

BlockedLrn::BlockedLrn(const LrnDesc& desc)
    : desc_(desc),
      places_(desc.height * desc.width),
      reach_(desc.size / 2),
      ratio_(desc.alpha / static_cast<float>(desc.size)) {}

std::int64_t BlockedLrn::row() const {
  const std::int64_t margin = (reach_ + kMargin - 1) / kMargin * kMargin;
  return (desc_.channels + kMargin - 1) / kMargin * kMargin + 2 * margin;
}

std::int64_t BlockedLrn::room() const { return 2 * kPlaces * row(); }

// Calls work(first number of the strip, its places, zeroed rows of its thread) for each strip.
template <class Work>
void BlockedLrn::each_strip(Context& ctx, const BlockedChannels& layout, const Work& work) const {
  const std::int64_t strips = (places_ + kPlaces - 1) / kPlaces;
  float* const scratch = ctx.scratch(ctx.threads() * room()).data();
  std::fill_n(scratch, ctx.threads() * room(), 0.0f);
  parallel_for(ctx.threads(), desc_.images * strips, grain_of(8 * desc_.channels * kPlaces),
               [&](int thread, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t s = begin; s < end; ++s) {
                   const std::int64_t place = s % strips * kPlaces;
                   work((s / strips * layout.blocks() * places_ + place) * layout.block,
                        std::min(kPlaces, places_ - place), scratch + thread * room());
                 }
               });
}

void BlockedLrn::forward(Context& ctx, const Tensor& x, Tensor& y) const {
  const LayoutPtr layout = x.layout();
  const BlockedChannels& lies = *as_blocked(layout);
  const std::byte* const in = x.read(ctx, layout);
  std::byte* const out = y.write(ctx, layout);
  const std::int64_t row = this->row(), margin = (row - lies.blocks() * lies.block) / 2;
  with_power(desc_.beta, [&](auto power) {
    with_blocks(lies, [&](auto block, auto one) {
      constexpr int kBlock = decltype(block)::value;
      using N = decltype(one);
      each_strip(ctx, lies, [&](std::int64_t first, std::int64_t places, float* rows) {
        const Strip<kBlock, N> strip(numbers<N>(in) + first, lies.blocks(), places_, places);
        N* const to = numbers<N>(out) + first;
        const auto place_of = [&](std::int64_t p, std::int64_t b) {
          return rows + p * row + margin + b * kBlock;
        };
        strip.each([&](std::int64_t p, std::int64_t b, std::int64_t at) {
          const auto value = strip.at(at);
          store_block<kBlock>(value * value, place_of(p, b));
        });
        strip.each([&](std::int64_t p, std::int64_t b, std::int64_t at) {
          auto s = base_of<kBlock>(desc_, ratio_, place_of(p, b), b);
          for (int lane = 0; lane < kBlock; ++lane) s[lane] = power(s[lane]);
          store_block<kBlock>(strip.at(at) * s, to + at);
        });
      });
    });
  });
}

// Computes what the plain kernel's backward does.
void BlockedLrn::backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) const {
  const LayoutPtr layout = x.layout();
  const BlockedChannels& lies = *as_blocked(layout);
  const std::byte *const in = x.read(ctx, layout), *const slope = dy.read(ctx, layout);
  std::byte* const out = dx.write(ctx, layout);
  const std::int64_t row = this->row(), margin = (row - lies.blocks() * lies.block) / 2;
  const float factor = 2 * ratio_ * desc_.beta;
  with_power(desc_.beta, [&](auto power) {
    with_blocks(lies, [&](auto block, auto one) {
      constexpr int kBlock = decltype(block)::value;
      using N = decltype(one);
      each_strip(ctx, lies, [&](std::int64_t first, std::int64_t places, float* rows) {
        const Strip<kBlock, N> strip(numbers<N>(in) + first, lies.blocks(), places_, places),
            slopes(numbers<N>(slope) + first, lies.blocks(), places_, places);
        N* const to = numbers<N>(out) + first;
        const auto place_of = [&](std::int64_t p, std::int64_t b) {
          return rows + p * row + margin + b * kBlock;
        };
        float* const ratios = rows + kPlaces * row;
        strip.each([&](std::int64_t p, std::int64_t b, std::int64_t at) {
          const auto value = strip.at(at);
          store_block<kBlock>(value * value, place_of(p, b));
        });
        strip.each([&](std::int64_t p, std::int64_t b, std::int64_t at) {
          const auto s = base_of<kBlock>(desc_, ratio_, place_of(p, b), b);
          auto powers = s;
          for (int lane = 0; lane < kBlock; ++lane) powers[lane] = power(powers[lane]);
          const auto direct = slopes.at(at) * powers;
          store_block<kBlock>(direct * strip.at(at) / s, ratios + (place_of(p, b) - rows));
          store_block<kBlock>(direct, to + at);
        });
        strip.each([&](std::int64_t p, std::int64_t b, std::int64_t at) {
          const auto total = window_sum<kBlock>(ratios + (place_of(p, b) - rows), reach_);
          const auto direct = load_block<kBlock>(to + at);
          store_block<kBlock>(direct - factor * strip.at(at) * total, to + at);
        });
      });
    });
  });
}

}  // namespace shoal::ops::cpu
