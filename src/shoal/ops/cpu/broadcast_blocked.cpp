#include "shoal/ops/cpu/broadcast_blocked.h"

#include <algorithm>
#include <vector>

#include "shoal/ops/cpu/block_sums.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/sum_target.h"

namespace shoal::ops::cpu {
namespace {

// The planes of a tensor, each a block of channels of one image, and the number of each channel.
template <int kBlock>
class Planes {
 public:
  using Floats = typename BlockOf<kBlock>::Floats;
  Planes(Context& ctx, const BroadcastDims& dims, const BlockedChannels& lies)
      : ctx_(ctx), channels_(lies.channels), blocks_(lies.blocks()), size_(lies.inner * kBlock) {
    images_ = dims.outer * dims.dim * dims.inner / (lies.channels * lies.inner);
    by_channel_ = dims.dim == 1 ? 0 : 1;
    by_image_ = dims.dim == 1 || dims.dim == lies.channels ? 0 : lies.channels;
  }
  std::int64_t count() const { return images_ * blocks_; }
  std::int64_t size() const { return size_; }
  int lanes(std::int64_t plane) const {
    return static_cast<int>(std::min<std::int64_t>(kBlock, channels_ - plane % blocks_ * kBlock));
  }
  // Returns where the number lies that meets this channel of the plane.
  std::int64_t index(std::int64_t plane, int lane) const {
    return plane / blocks_ * by_image_ + (plane % blocks_ * kBlock + lane) * by_channel_;
  }
  // Zeros for channels that are not there; `rest` for all without numbers.
  Floats numbers_of(const float* numbers, std::int64_t plane, float rest) const {
    Floats found{};
    for (int lane = 0; lane < lanes(plane); ++lane)
      found[lane] = numbers != nullptr ? numbers[index(plane, lane)] : rest;
    return found;
  }

  // Calls f(plane, its first number, one past its last) for each plane.
  template <class F>
  void each(const F& f) const {
    parallel_for(ctx_.threads(), count(), grain_of(size_),
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t p = begin; p < end; ++p) f(p, p * size_, (p + 1) * size_);
                 });
  }

  // The sums of f(plane) -> BlockSums over the planes of each number go to put(number, plain,
  // products).
  template <class F, class Put>
  void sum(const F& f, const Put& put) const {
    std::vector<BlockSums<kBlock>> parts(static_cast<std::size_t>(count()));
    each([&](std::int64_t plane, std::int64_t, std::int64_t) {
      parts[static_cast<std::size_t>(plane)] = f(plane);
    });
    struct Sum {
      double plain = 0, products = 0;
    };
    const std::int64_t numbers =
        index((by_image_ > 0 ? count() : blocks_) - 1, lanes(blocks_ - 1) - 1) + 1;
    std::vector<Sum> sums(static_cast<std::size_t>(numbers));
    for (std::int64_t plane = 0; plane < count(); ++plane)
      for (int lane = 0; lane < lanes(plane); ++lane) {
        Sum& of = sums[static_cast<std::size_t>(index(plane, lane))];
        of.plain += parts[static_cast<std::size_t>(plane)].plain[lane];
        of.products += parts[static_cast<std::size_t>(plane)].products[lane];
      }
    for (std::int64_t d = 0; d < numbers; ++d) {
      const Sum& of = sums[static_cast<std::size_t>(d)];
      put(d, of.plain, of.products);
    }
  }

 private:
  Context& ctx_;
  std::int64_t images_, channels_, blocks_, size_;
  std::int64_t by_image_, by_channel_;  // between numbers
};

const float* in_or_null(const Tensor* tensor) { return tensor != nullptr ? tensor->in() : nullptr; }

// Calls work(Planes, N()) for the block and type of the layout.
template <class Work>
void with_planes(Context& ctx, const BroadcastDims& dims, const LayoutPtr& layout,
                 const Work& work) {
  const BlockedChannels& lies = *as_blocked(layout);
  with_blocks(lies, [&](auto block, auto one) {
    work(Planes<decltype(block)::value>(ctx, dims, lies), block, one);
  });
}

}  // namespace

LayoutPtr blocks_of(const BroadcastDims& dims, const Tensor& x) {
  const LayoutPtr layout = x.layout();
  const BlockedChannels* const lies = as_blocked(layout);
  if (lies == nullptr) return nullptr;
  const std::int64_t count = dims.outer * dims.dim * dims.inner,
                     image = lies->channels * lies->inner;
  if (count == 0 || image == 0 || count % image != 0) return nullptr;
  const bool by_channel =
      dims.inner == lies->inner && (dims.dim == lies->channels || dims.dim * dims.inner == count);
  return dims.dim == 1 || by_channel ? layout : nullptr;
}

void BlockedBroadcast::scale_and_shift(const Tensor& x, const Tensor* factor, const Tensor* shift,
                                       Tensor& y) const {
  const float *const factors = in_or_null(factor), *const shifts = in_or_null(shift);
  const std::byte* const in = x.read(ctx_, layout_);
  std::byte* const out = y.write(ctx_, layout_);
  with_planes(ctx_, dims_, layout_, [&](const auto& planes, auto block, auto one) {
    constexpr int kBlock = decltype(block)::value;
    using N = decltype(one);
    planes.each([&](std::int64_t plane, std::int64_t begin, std::int64_t end) {
      const auto a = planes.numbers_of(factors, plane, 1), b = planes.numbers_of(shifts, plane, 0);
      for (std::int64_t i = begin; i < end; i += kBlock)
        store_block<kBlock>(a * load_block<kBlock>(numbers<N>(in) + i) + b, numbers<N>(out) + i);
    });
  });
}

void BlockedBroadcast::scale_backward(const Tensor& g, const Tensor& x, const Tensor* factor,
                                      Tensor* gx, SumInto g_factor, SumInto g_shift) const {
  const SumTarget factor_sums(g_factor), shift_sums(g_shift);
  const bool products = g_factor.tensor != nullptr, sums = products || g_shift.tensor != nullptr;
  const float* const factors = in_or_null(factor);
  const std::byte* const slope = g.read(ctx_, layout_);
  const std::byte* const in = products ? x.read(ctx_, layout_) : slope;
  std::byte* const out = gx != nullptr ? gx->write(ctx_, layout_) : nullptr;
  with_planes(ctx_, dims_, layout_, [&](const auto& planes, auto block, auto one) {
    constexpr int kBlock = decltype(block)::value;
    using N = decltype(one);
    // Visits each place once: what is written may be what is read.
    const auto sums_of_plane = [&](std::int64_t plane) {
      const auto a = planes.numbers_of(factors, plane, 1);
      return sums_of_places<kBlock>(plane * planes.size(), planes.size(), [&](std::int64_t i) {
        const auto grad = load_block<kBlock>(numbers<N>(slope) + i);
        const auto number = load_block<kBlock>(numbers<N>(in) + i);
        if (out != nullptr) store_block<kBlock>(grad * a, numbers<N>(out) + i);
        return Two<typename BlockOf<kBlock>::Floats>{grad, number};
      });
    };
    if (sums)
      return planes.sum(sums_of_plane, [&](std::int64_t d, double plain, double products_of) {
        factor_sums.put(d, products_of);
        shift_sums.put(d, plain);
      });
    planes.each([&](std::int64_t plane, std::int64_t, std::int64_t) { sums_of_plane(plane); });
  });
}

void BlockedBroadcast::prelu(const Tensor& x, const Tensor& slope, Tensor& y) const {
  const float* const slopes = slope.in();
  const std::byte* const in = x.read(ctx_, layout_);
  std::byte* const out = y.write(ctx_, layout_);
  with_planes(ctx_, dims_, layout_, [&](const auto& planes, auto block, auto one) {
    constexpr int kBlock = decltype(block)::value;
    using N = decltype(one);
    planes.each([&](std::int64_t plane, std::int64_t begin, std::int64_t end) {
      const auto a = planes.numbers_of(slopes, plane, 0);
      for (std::int64_t i = begin; i < end; i += kBlock) {
        const auto number = load_block<kBlock>(numbers<N>(in) + i);
        store_block<kBlock>(number > 0 ? number : a * number, numbers<N>(out) + i);
      }
    });
  });
}

void BlockedBroadcast::prelu_backward(const Tensor& x, const Tensor& slope, const Tensor& dy,
                                      Tensor& dx) const {
  const float* const slopes = slope.in();
  const std::byte* const in = x.read(ctx_, layout_);
  const std::byte* const up = dy.read(ctx_, layout_);
  std::byte* const out = dx.write(ctx_, layout_);
  with_planes(ctx_, dims_, layout_, [&](const auto& planes, auto block, auto one) {
    constexpr int kBlock = decltype(block)::value;
    using N = decltype(one);
    planes.each([&](std::int64_t plane, std::int64_t begin, std::int64_t end) {
      const auto a = planes.numbers_of(slopes, plane, 0);
      for (std::int64_t i = begin; i < end; i += kBlock) {
        const auto number = load_block<kBlock>(numbers<N>(in) + i),
                   grad = load_block<kBlock>(numbers<N>(up) + i);
        store_block<kBlock>(number > 0 ? grad : a * grad, numbers<N>(out) + i);
      }
    });
  });
}

void BlockedBroadcast::prelu_slope_backward(const Tensor& x, const Tensor& dy,
                                            Tensor& dslope) const {
  const std::byte* const in = x.read(ctx_, layout_);
  const std::byte* const up = dy.read(ctx_, layout_);
  float* const slopes = dslope.mut();
  with_planes(ctx_, dims_, layout_, [&](const auto& planes, auto block, auto one) {
    constexpr int kBlock = decltype(block)::value;
    using N = decltype(one);
    using Floats = typename BlockOf<kBlock>::Floats;
    const Floats zeros{};
    planes.sum(
        [&](std::int64_t plane) {
          return sums_of_places<kBlock>(
              plane * planes.size(), planes.size(), [&](std::int64_t i) -> Two<Floats> {
                const Floats number = load_block<kBlock>(numbers<N>(in) + i),
                             grad = load_block<kBlock>(numbers<N>(up) + i);
                // Takes no product of zero and infinity.
                return {number > 0 ? zeros : grad, number > 0 ? zeros : number};
              });
        },
        [&](std::int64_t c, double, double products) {
          slopes[c] += static_cast<float>(products);
        });
  });
}

}  // namespace shoal::ops::cpu
