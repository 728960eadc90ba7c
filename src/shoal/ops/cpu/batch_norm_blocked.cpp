// Batch normalization of images in blocks of channels.
#include "shoal/ops/cpu/batch_norm_blocked.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/block_sums.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/running_sums.h"
#include "shoal/ops/cpu/sum_target.h"

namespace shoal::ops::cpu {
namespace {

// The work on one layout: images of `blocks` blocks of kBlock channels, numbers of type N.
template <int kBlock, class N>
class Blocks {
 public:
  using Floats = typename BlockOf<kBlock>::Floats;
  using Doubles = typename BlockOf<kBlock>::Doubles;

  Blocks(Context& ctx, const BatchNormDesc& desc)
      : ctx_(ctx),
        images_(desc.images),
        channels_(desc.channels),
        inner_(desc.inner),
        blocks_((desc.channels + kBlock - 1) / kBlock),
        eps_(desc.eps),
        count_(static_cast<double>(desc.images * desc.inner)) {}

  using Sums = BlockSums<kBlock>;

  // Returns the numbers of a block's channels, of C in plain order; `rest` for channels that are
  // not there.
  Floats channels_of(const float* numbers, std::int64_t block, float rest) const {
    Floats found = Floats{} + rest;
    if (numbers != nullptr)
      for (int lane = 0; lane < lanes(block); ++lane) found[lane] = numbers[block * kBlock + lane];
    return found;
  }
  int lanes(std::int64_t block) const {
    return static_cast<int>(std::min<std::int64_t>(kBlock, channels_ - block * kBlock));
  }
  double count() const { return count_; }
  Floats inverse_deviation(const float* variances, std::int64_t block) const {
    Floats found = channels_of(variances, block, 1);
    for (int lane = 0; lane < kBlock; ++lane) found[lane] = 1 / std::sqrt(found[lane] + eps_);
    return found;
  }

  // Calls sum(block, first number, numbers) -> Sums for each image's part of each block, whose
  // total goes to finish(block, Sums); then apply(block, first number, numbers) for each of them
  // again.
  template <class Sum, class Finish, class Apply>
  void in_two_passes(const Sum& sum, const Finish& finish, const Apply& apply) const {
    const std::int64_t step = inner_ * kBlock;
    const auto first = [&](std::int64_t block, std::int64_t image) {
      return (image * blocks_ + block) * step;
    };
    if (blocks_ >= ctx_.threads())
      return parallel_for(ctx_.threads(), blocks_, grain_of(images_ * step),
                          [&](int, std::int64_t begin, std::int64_t end) {
                            for (std::int64_t b = begin; b < end; ++b) {
                              Sums total;
                              for (std::int64_t n = 0; n < images_; ++n)
                                total += sum(b, first(b, n), step);
                              finish(b, total);
                              for (std::int64_t n = 0; n < images_; ++n)
                                apply(b, first(b, n), step);
                            }
                          });
    std::vector<Sums> parts(static_cast<std::size_t>(blocks_ * images_));
    const auto each_part = [&](const auto& work) {
      parallel_for(ctx_.threads(), blocks_ * images_, grain_of(step),
                   [&](int, std::int64_t begin, std::int64_t end) {
                     for (std::int64_t p = begin; p < end; ++p) work(p, p / images_, p % images_);
                   });
    };
    each_part([&](std::int64_t part, std::int64_t b, std::int64_t n) {
      parts[static_cast<std::size_t>(part)] = sum(b, first(b, n), step);
    });
    for (std::int64_t b = 0; b < blocks_; ++b) {
      Sums total;
      for (std::int64_t n = 0; n < images_; ++n)
        total += parts[static_cast<std::size_t>(b * images_ + n)];
      finish(b, total);
    }
    each_part([&](std::int64_t, std::int64_t b, std::int64_t n) { apply(b, first(b, n), step); });
  }

 private:
  Context& ctx_;
  std::int64_t images_, channels_, inner_, blocks_;
  float eps_;
  double count_;  // numbers of one channel
};

template <class Floats>
Floats relu_of(const Floats& x, float slope) {
  // A NaN stays one.
  return x < 0 ? slope * x : x;
}

const float* in_or_null(const Tensor* tensor) { return tensor != nullptr ? tensor->in() : nullptr; }

// A forward call's pointers; fetched before threads start.
template <int kBlock, class N>
struct Forward {
  using Floats = typename BlockOf<kBlock>::Floats;
  Forward(Context& ctx, const Tensor& x, const AfterNorm& after, Tensor& y)
      : layout(x.layout()),
        in(numbers<N>(x.read(ctx, layout))),
        factor(in_or_null(after.factor)),
        shift(in_or_null(after.shift)),
        slope(after.slope),
        normalized(after.normalized ? numbers<N>(after.normalized->write(ctx, layout)) : nullptr),
        out(numbers<N>(y.write(ctx, layout))) {}

  void normalize(const Blocks<kBlock, N>& blocks, std::int64_t b, std::int64_t first,
                 std::int64_t count, const Floats& mean, const Floats& inverse) const {
    const Floats factors = blocks.channels_of(factor, b, 1),
                 shifts = blocks.channels_of(shift, b, 0);
    const bool scales = factor != nullptr;
    for (std::int64_t i = first; i < first + count; i += kBlock) {
      Floats n = (load_block<kBlock>(in + i) - mean) * inverse;
      if (normalized != nullptr) store_block<kBlock>(n, normalized + i);
      if (scales) n = factors * n + shifts;
      store_block<kBlock>(slope ? relu_of(n, *slope) : n, out + i);
    }
  }

  LayoutPtr layout;
  const N* in;
  const float *factor, *shift;
  std::optional<float> slope;
  N *normalized, *out;
};

// A backward call's pointers.
template <int kBlock, class N>
struct Backward {
  using Floats = typename BlockOf<kBlock>::Floats;
  Backward(Context& ctx, const NormInput& x, const LayoutPtr& now, const Tensor& dy,
           const AfterNormBackward& after, Tensor* dx)
      : layout(now),
        in(x.tensor ? numbers<N>(x.tensor->read(ctx, layout)) : nullptr),
        slope(numbers<N>(dy.read(ctx, layout))),
        factor(in_or_null(after.factor)),
        shift(in_or_null(after.shift)),
        relu(after.slope),
        out(dx ? numbers<N>(dx->write(ctx, layout)) : nullptr),
        is_normalized(x.is_normalized),
        g_factor(after.g_factor),
        g_shift(after.g_shift) {}

  // The constants of one block of channels.
  struct Channels {
    Floats center, stretch, inverse, factor, shift;
  };
  Channels channels(const Blocks<kBlock, N>& blocks, std::int64_t b, const float* means,
                    const float* variances) const {
    const Floats inverse = blocks.inverse_deviation(variances, b);
    return {is_normalized ? Floats{} : blocks.channels_of(means, b, 0),
            is_normalized ? Floats{} + 1 : inverse, inverse, blocks.channels_of(factor, b, 1),
            blocks.channels_of(shift, b, 0)};
  }
  // Returns the gradient of what the ReLU got, and the normalized number, at place i.
  Two<Floats> at(std::int64_t i, const Channels& c) const {
    const Floats g = load_block<kBlock>(slope + i);
    if (in == nullptr) return {g, Floats{}};
    const Floats n = (load_block<kBlock>(in + i) - c.center) * c.stretch;
    if (!relu) return {g, n};
    return {c.factor * n + c.shift > 0 ? g : *relu * g, n};
  }
  bool sums() const { return g_factor.numbers != nullptr || g_shift.numbers != nullptr; }
  template <class Sums>
  void put(const Blocks<kBlock, N>& blocks, std::int64_t b, const Sums& sums) const {
    for (int lane = 0; lane < blocks.lanes(b); ++lane) {
      g_factor.put(b * kBlock + lane, sums.products[lane]);
      g_shift.put(b * kBlock + lane, sums.plain[lane]);
    }
  }

  LayoutPtr layout;
  const N *in, *slope;
  const float *factor, *shift;
  std::optional<float> relu;
  N* out;
  bool is_normalized;
  SumTarget g_factor, g_shift;
};

}  // namespace

void BlockedBatchNorm::forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                                     const RunningSums& running, const AfterNorm& after,
                                     Tensor& y) const {
  float *const means = mean.out(), *const variances = variance.out();
  with_blocks(*as_blocked(x.layout()), [&](auto block, auto one) {
    using N = decltype(one);
    constexpr int kBlock = decltype(block)::value;
    using All = Blocks<kBlock, N>;
    const All blocks(ctx, desc_);
    const Forward<kBlock, N> to(ctx, x, after, y);
    const RunningNumbers running_numbers(running, blocks.count());
    // `near` gives some number of each channel: it keeps the squares small where the mean is large.
    const auto near = [&](std::int64_t b) {
      return load_block<kBlock>(to.in + b * desc_.inner * kBlock);
    };
    blocks.in_two_passes(
        [&](std::int64_t b, std::int64_t first, std::int64_t count) {
          const auto middle = near(b);
          return sums_of_places<kBlock>(first, count, [&](std::int64_t i) {
            const auto a = load_block<kBlock>(to.in + i) - middle;
            return Two<typename All::Floats>{a, a};
          });
        },
        [&](std::int64_t b, const typename All::Sums& sums) {
          const auto middle = near(b);
          for (int lane = 0; lane < blocks.lanes(b); ++lane) {
            const std::int64_t c = b * kBlock + lane;
            const double offset = sums.plain[lane] / blocks.count();
            means[c] = static_cast<float>(middle[lane] + offset);
            variances[c] = static_cast<float>(
                std::max(0.0, sums.products[lane] / blocks.count() - offset * offset));
            running_numbers.add(c, means[c], variances[c]);
          }
        },
        [&](std::int64_t b, std::int64_t first, std::int64_t count) {
          to.normalize(blocks, b, first, count, blocks.channels_of(means, b, 0),
                       blocks.inverse_deviation(variances, b));
        });
  });
}

void BlockedBatchNorm::forward_global(Context& ctx, const Tensor& x, const Tensor& mean,
                                      const Tensor& variance, const AfterNorm& after,
                                      Tensor& y) const {
  const float *const means = mean.in(), *const variances = variance.in();
  with_blocks(*as_blocked(x.layout()), [&](auto block, auto one) {
    using N = decltype(one);
    constexpr int kBlock = decltype(block)::value;
    using All = Blocks<kBlock, N>;
    const All blocks(ctx, desc_);
    const Forward<kBlock, N> to(ctx, x, after, y);
    blocks.in_two_passes(
        [](std::int64_t, std::int64_t, std::int64_t) { return typename All::Sums{}; },
        [](std::int64_t, const typename All::Sums&) {},
        [&](std::int64_t b, std::int64_t first, std::int64_t count) {
          to.normalize(blocks, b, first, count, blocks.channels_of(means, b, 0),
                       blocks.inverse_deviation(variances, b));
        });
  });
}

void BlockedBatchNorm::backward_batch(Context& ctx, const NormInput& x, const Tensor& mean,
                                      const Tensor& variance, const Tensor& dy,
                                      const AfterNormBackward& after, Tensor* dx) const {
  const float *const means = mean.in(), *const variances = variance.in();
  with_blocks(*as_blocked(x.tensor->layout()), [&](auto block, auto one) {
    using N = decltype(one);
    constexpr int kBlock = decltype(block)::value;
    using All = Blocks<kBlock, N>;
    using Floats = typename All::Floats;
    const All blocks(ctx, desc_);
    const Backward<kBlock, N> to(ctx, x, x.tensor->layout(), dy, after, dx);
    std::vector<Two<Floats>> slopes(
        static_cast<std::size_t>((desc_.channels + kBlock - 1) / kBlock));  // along, across
    blocks.in_two_passes(
        [&](std::int64_t b, std::int64_t first, std::int64_t count) {
          const auto channels = to.channels(blocks, b, means, variances);
          return sums_of_places<kBlock>(first, count,
                                        [&](std::int64_t i) { return to.at(i, channels); });
        },
        [&](std::int64_t b, const typename All::Sums& sums) {
          to.put(blocks, b, sums);
          const auto channels = to.channels(blocks, b, means, variances);
          Two<Floats>& of = slopes[static_cast<std::size_t>(b)];
          for (int lane = 0; lane < kBlock; ++lane) {
            const double factor = double{channels.factor[lane]} / blocks.count();
            of.a[lane] = static_cast<float>(factor * sums.plain[lane]);
            of.b[lane] = static_cast<float>(factor * sums.products[lane]);
          }
        },
        [&](std::int64_t b, std::int64_t first, std::int64_t count) {
          if (to.out == nullptr) return;
          const auto channels = to.channels(blocks, b, means, variances);
          const auto [along, across] = slopes[static_cast<std::size_t>(b)];
          for (std::int64_t i = first; i < first + count; i += kBlock) {
            const auto [g, n] = to.at(i, channels);
            store_block<kBlock>((channels.factor * g - along - across * n) * channels.inverse,
                                to.out + i);
          }
        });
  });
}

void BlockedBatchNorm::backward_global(Context& ctx, const NormInput& x, const Tensor& mean,
                                       const Tensor& variance, const Tensor& dy,
                                       const AfterNormBackward& after, Tensor* dx) const {
  CHECK(!after.slope);
  const float *const means = mean.in(), *const variances = variance.in();
  // Without products the numbers do not matter.
  const NormInput input = after.g_factor.tensor != nullptr ? x : NormInput{};
  const LayoutPtr layout = input.tensor != nullptr ? input.tensor->layout() : dy.layout();
  with_blocks(*as_blocked(layout), [&](auto block, auto one) {
    using N = decltype(one);
    constexpr int kBlock = decltype(block)::value;
    using All = Blocks<kBlock, N>;
    const All blocks(ctx, desc_);
    const Backward<kBlock, N> to(ctx, input, layout, dy, after, dx);
    blocks.in_two_passes(
        [&](std::int64_t b, std::int64_t first, std::int64_t count) {
          if (!to.sums()) return typename All::Sums{};
          const auto channels = to.channels(blocks, b, means, variances);
          return sums_of_places<kBlock>(first, count,
                                        [&](std::int64_t i) { return to.at(i, channels); });
        },
        [&](std::int64_t b, const typename All::Sums& sums) { to.put(blocks, b, sums); },
        [&](std::int64_t b, std::int64_t first, std::int64_t count) {
          if (to.out == nullptr) return;
          const auto channels = to.channels(blocks, b, means, variances);
          const auto factor = channels.factor * channels.inverse;
          for (std::int64_t i = first; i < first + count; i += kBlock)
            store_block<kBlock>(load_block<kBlock>(to.slope + i) * factor, to.out + i);
        });
  });
}

}  // namespace shoal::ops::cpu
