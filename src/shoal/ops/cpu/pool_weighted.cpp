// Stochastic pooling on the CPU: draws a number of each window in training, averages them in tests.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/weighted_window.h"

namespace shoal::ops::cpu {
namespace {

// Returns the places of the plane that an output sees.
Window window_at(const PoolDesc& desc, std::int64_t output) {
  const auto inside = [](const WindowAxis& axis, std::int64_t o) {
    const std::int64_t start = o * axis.stride - axis.pad;
    return std::pair(static_cast<int>(std::max<std::int64_t>(0, start)),
                     static_cast<int>(std::min(axis.in, start + axis.kernel)));
  };
  const auto [h_begin, h_end] = inside(desc.height, output / desc.width.out);
  const auto [w_begin, w_end] = inside(desc.width, output % desc.width.out);
  return {h_begin, h_end, w_begin, w_end};
}

class WeightedPool final : public PoolKernel {
 public:
  explicit WeightedPool(const PoolDesc& desc)
      : desc_(desc),
        draws_(desc.method == PoolDesc::Method::kSampled),
        columns_(static_cast<int>(desc.width.in)),
        in_(desc.height.in * desc.width.in),
        out_(desc.height.out * desc.width.out) {}

  void forward(Context& ctx, const Tensor& x, Tensor& y, Tensor* index,
               const Random::State& coins) override {
    CHECK(index == nullptr) << "stochastic pooling has no largest numbers";
    if (draws_) winners_.resize(static_cast<std::size_t>(y.count()));
    const float* const in = x.in();
    float* const out = y.out();
    each_window(ctx, [=, this](std::int64_t plane, std::int64_t at, const Window& window) {
      const auto value = [from = in + plane * in_](int place) { return from[place]; };
      if (!draws_) {
        out[at] = weighted_mean(window, columns_, value).mean;
        return;
      }
      const int winner = draw_place(window, columns_,
                                    to_unit(word_at(coins, static_cast<std::uint64_t>(at))), value);
      winners_[static_cast<std::size_t>(at)] = winner;
      out[at] = winner < 0 ? 0.0f : value(winner);
    });
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) override {
    CHECK(!draws_ || !winners_.empty() || desc_.planes == 0) << "backward before forward";
    const float *const in = draws_ ? nullptr : x.in(), *const slope = dy.in();
    float* const out = dx.out();
    std::fill(out, out + dx.count(), 0.0f);
    each_window(ctx, [=, this](std::int64_t plane, std::int64_t at, const Window& window) {
      float* const to = out + plane * in_;
      if (draws_) {
        const std::int32_t winner = winners_[static_cast<std::size_t>(at)];
        if (winner >= 0) to[winner] += slope[at];
        return;
      }
      const auto value = [from = in + plane * in_](int place) { return from[place]; };
      const WeightedMean mean = weighted_mean(window, columns_, value);
      window.each(columns_, [&](int place) {
        to[place] += slope[at] * mean.slope(value(place));
        return true;
      });
    });
  }

 private:
  // Calls f(plane, number of the output among all, its window) for each output.
  template <class F>
  void each_window(Context& ctx, F f) const {
    parallel_for(ctx.threads(), desc_.planes, grain_of(in_),
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t at = begin * out_; at < end * out_; ++at)
                     f(at / out_, at, window_at(desc_, at % out_));
                 });
  }

  PoolDesc desc_;
  bool draws_;
  int columns_;
  std::int64_t in_, out_;              // numbers of one plane
  std::vector<std::int32_t> winners_;  // of the last forward: h * W + w for each output, or -1
};

}  // namespace

std::unique_ptr<PoolKernel> make_weighted_pool(const PoolDesc& desc) {
  return std::make_unique<WeightedPool>(desc);
}

}  // namespace shoal::ops::cpu
