// Pooling of images in blocks of channels: the largest number or the mean of each window.
#include "shoal/ops/cpu/pool_blocked.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "shoal/ops/cpu/blocks.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/taps.h"

namespace shoal::ops::cpu {
namespace {

constexpr int kNoWinner = 255;

// Returns the outputs whose windows hold an input of an axis: [begin, end).
Taps outputs_at(const WindowAxis& axis, std::int64_t input) {
  const std::int64_t place = input + axis.pad;
  const std::int64_t begin = place < axis.kernel ? 0 : (place - axis.kernel) / axis.stride + 1;
  return {begin, std::max(begin, std::min(axis.out, place / axis.stride + 1))};
}

// Tables of what windows see along one axis.
struct AxisTable {
  explicit AxisTable(const WindowAxis& window) : axis(window) {
    for (std::int64_t o = 0; o < axis.out; ++o) {
      inside.push_back(inside_at(axis, o));
      area.push_back(covered(axis, o));
    }
    for (std::int64_t i = 0; i < axis.in; ++i) outputs.push_back(outputs_at(axis, i));
  }
  std::int64_t first(std::int64_t output) const { return output * axis.stride - axis.pad; }

  WindowAxis axis;
  std::vector<Taps> inside, outputs;  // for each output; for each input
  std::vector<float> area;            // for each output: places of the padded axis
};

// The loops over one plane of blocks, for blocks of kBlock numbers of type N.
template <int kBlock, class N>
class Plane {
 public:
  using Floats = typename BlockOf<kBlock>::Floats;
  using Ints = typename BlockOf<kBlock>::Ints;

  Plane(const AxisTable& height, const AxisTable& width) : height_(height), width_(width) {}

  // `winners`: room for the tap of each largest number, or null.
  void largest(const N* in, N* out, std::uint8_t* winners) const {
    for (std::int64_t h = 0; h < height_.axis.out; ++h) {
      const Taps rows = height_.inside[at(h)];
      for (std::int64_t w = 0; w < width_.axis.out; ++w, out += kBlock) {
        const Taps columns = width_.inside[at(w)];
        Floats best = Floats{} - std::numeric_limits<float>::infinity();
        Ints winner = Ints{} + kNoWinner;
        for (std::int64_t i = rows.begin; i < rows.end; ++i) {
          const N* const row =
              in + ((height_.first(h) + i) * width_.axis.in + width_.first(w)) * kBlock;
          for (std::int64_t j = columns.begin; j < columns.end; ++j) {
            const Floats value = load_block<kBlock>(row + j * kBlock);
            const Ints wins = value > best;
            best = wins ? value : best;
            winner = wins ? Ints{} + static_cast<std::int32_t>(i * width_.axis.kernel + j) : winner;
          }
        }
        if (rows.begin == rows.end || columns.begin == columns.end) best = Floats{};
        store_block<kBlock>(best, out);
        if (winners == nullptr) continue;
        store_bytes<kBlock>(winner, winners);
        winners += kBlock;
      }
    }
  }

  void give_to_winners(const N* dy, const std::uint8_t* winners, N* dx) const {
    each_input([&](std::int64_t h, std::int64_t w, const Taps& rows, const Taps& columns) {
      Floats sum{};
      for (std::int64_t i = rows.begin; i < rows.end; ++i)
        for (std::int64_t j = columns.begin; j < columns.end; ++j) {
          const std::int64_t place = (i * width_.axis.out + j) * kBlock;
          const std::int64_t tap =
              (h - height_.first(i)) * width_.axis.kernel + w - width_.first(j);
          const Ints won = load_bytes<kBlock>(winners + place) == static_cast<std::int32_t>(tap);
          sum += won ? load_block<kBlock>(dy + place) : Floats{};
        }
      store_block<kBlock>(sum, dx);
      dx += kBlock;
    });
  }

  void average(const N* in, N* out) const {
    for (std::int64_t h = 0; h < height_.axis.out; ++h) {
      const Taps rows = height_.inside[at(h)];
      for (std::int64_t w = 0; w < width_.axis.out; ++w, out += kBlock) {
        const Taps columns = width_.inside[at(w)];
        Floats total{};
        for (std::int64_t i = rows.begin; i < rows.end; ++i) {
          const N* const row =
              in + ((height_.first(h) + i) * width_.axis.in + width_.first(w)) * kBlock;
          for (std::int64_t j = columns.begin; j < columns.end; ++j)
            total += load_block<kBlock>(row + j * kBlock);
        }
        store_block<kBlock>(total / (height_.area[at(h)] * width_.area[at(w)]), out);
      }
    }
  }

  void spread(const N* dy, N* dx) const {
    each_input([&](std::int64_t, std::int64_t, const Taps& rows, const Taps& columns) {
      Floats sum{};
      for (std::int64_t i = rows.begin; i < rows.end; ++i)
        for (std::int64_t j = columns.begin; j < columns.end; ++j)
          sum += load_block<kBlock>(dy + (i * width_.axis.out + j) * kBlock) /
                 (height_.area[at(i)] * width_.area[at(j)]);
      store_block<kBlock>(sum, dx);
      dx += kBlock;
    });
  }

 private:
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  // Calls f(h, w, the outputs that see row h, those that see column w) for each input.
  template <class F>
  void each_input(F f) const {
    for (std::int64_t h = 0; h < height_.axis.in; ++h) {
      const Taps rows = height_.outputs[at(h)];
      for (std::int64_t w = 0; w < width_.axis.in; ++w) f(h, w, rows, width_.outputs[at(w)]);
    }
  }

  const AxisTable &height_, &width_;
};

}  // namespace

BlockedPool::BlockedPool(const PoolDesc& desc)
    : desc_(desc),
      in_(desc.height.in * desc.width.in),
      out_(desc.height.out * desc.width.out),
      max_(desc.method == PoolDesc::Method::kMax) {}

const BlockedChannels* BlockedPool::serves(const Tensor& x) const {
  const BlockedChannels* const layout = as_blocked(x.layout());
  const bool fits = layout != nullptr && layout->inner == in_ &&
                    desc_.planes % layout->channels == 0 &&
                    desc_.height.kernel * desc_.width.kernel < kNoWinner;
  return fits ? layout : nullptr;
}

// Calls f(plane of blocks, its first block in x, in y) for each plane.
template <class F>
void BlockedPool::each_plane(Context& ctx, F f) const {
  const std::int64_t planes = desc_.planes / layout_->channels * layout_->blocks();
  const std::int64_t block = layout_->block;
  parallel_for(ctx.threads(), planes, grain_of(in_ * block),
               [&](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t p = begin; p < end; ++p) f(p, p * in_ * block, p * out_ * block);
               });
}

void BlockedPool::forward(Context& ctx, const Tensor& x, Tensor& y) {
  const LayoutPtr from = x.layout();
  layout_ = std::static_pointer_cast<const BlockedChannels>(from);
  const std::byte* const in = x.read(ctx, from);
  std::byte* const out = y.write(ctx, output_layout());
  const std::size_t winners = static_cast<std::size_t>(desc_.planes / layout_->channels *
                                                       layout_->blocks() * out_ * layout_->block);
  if (max_ && desc_.keeps_winners && winners_.size() != winners) winners_.resize(winners);
  with_blocks(*layout_, [&](auto block, auto one) {
    using N = decltype(one);
    const AxisTable height(desc_.height), width(desc_.width);
    const Plane<block, N> plane(height, width);
    each_plane(ctx, [&](std::int64_t, std::int64_t first_in, std::int64_t first_out) {
      const N* const of = numbers<N>(in) + first_in;
      N* const to = numbers<N>(out) + first_out;
      if (max_)
        plane.largest(of, to, desc_.keeps_winners ? winners_.data() + first_out : nullptr);
      else
        plane.average(of, to);
    });
  });
}

void BlockedPool::backward(Context& ctx, const Tensor& dy, Tensor& dx) const {
  const std::byte* const slope = dy.read(ctx, output_layout());
  std::byte* const out = dx.write(ctx, layout_);
  with_blocks(*layout_, [&](auto block, auto one) {
    using N = decltype(one);
    const AxisTable height(desc_.height), width(desc_.width);
    const Plane<block, N> plane(height, width);
    each_plane(ctx, [&](std::int64_t, std::int64_t first_in, std::int64_t first_out) {
      const N* const of = numbers<N>(slope) + first_out;
      N* const to = numbers<N>(out) + first_in;
      if (max_)
        plane.give_to_winners(of, winners_.data() + first_out, to);
      else
        plane.spread(of, to);
    });
  });
}

LayoutPtr BlockedPool::output_layout() const {
  return blocked_channels(layout_->channels, out_, layout_->block, layout_->type);
}

}  // namespace shoal::ops::cpu
