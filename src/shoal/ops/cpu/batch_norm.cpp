#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/batch_norm_blocked.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/pair_sums.h"
#include "shoal/ops/cpu/parallel.h"
#include "shoal/ops/cpu/relu.h"
#include "shoal/ops/cpu/running_sums.h"
#include "shoal/ops/cpu/sum_target.h"

namespace shoal::ops::cpu {
namespace {

class BatchNorm final : public BatchNormKernel {
 public:
  explicit BatchNorm(const BatchNormDesc& desc)
      : desc_(desc), blocked_(desc), count_(static_cast<double>(desc.images * desc.inner)) {}

  void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                     RunningSums running, AfterNorm after, Tensor& y) override {
    if (blocked_.serves(&x))
      return blocked_.forward_batch(ctx, x, mean, variance, running, after, y);
    float *means = mean.out(), *variances = variance.out();
    const Forward to(x, after, y);
    const RunningNumbers sums_of_all(running, count_);
    each_channel(ctx, [&](std::int64_t c) {
      // `shift` is some number of the channel: it keeps the squares small where the mean is large.
      const float shift = to.in[c * desc_.inner];
      PairSums sums;
      each_run(
          c, [&](std::int64_t at) { sums.add(to.in + at, shift, to.in + at, shift, desc_.inner); });
      const double offset = sums.plain / count_;
      means[c] = static_cast<float>(shift + offset);
      variances[c] = static_cast<float>(std::max(0.0, sums.products / count_ - offset * offset));
      sums_of_all.add(c, means[c], variances[c]);
      normalize(c, to, means[c], variances[c]);
    });
  }

  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance,
                      AfterNorm after, Tensor& y) override {
    if (blocked_.serves(&x)) return blocked_.forward_global(ctx, x, mean, variance, after, y);
    const float *means = mean.in(), *variances = variance.in();
    const Forward to(x, after, y);
    each_channel(ctx, [&](std::int64_t c) { normalize(c, to, means[c], variances[c]); });
  }

  void backward_batch(Context& ctx, NormInput x, const Tensor& mean, const Tensor& variance,
                      const Tensor& dy, AfterNormBackward after, Tensor* dx) override {
    if (blocked_.serves(x.tensor))
      return blocked_.backward_batch(ctx, x, mean, variance, dy, after, dx);
    const Backward to(x.tensor->in(), dy, after, dx);
    const float *means = mean.in(), *variances = variance.in();
    each_channel(ctx, [&](std::int64_t c) {
      const Normal n(x, means[c], inverse_deviation(variances[c]));
      const PairSums sums = add_up(to, c, n);
      if (to.out == nullptr) return;
      const float along = static_cast<float>(to.factor_of(c) * sums.plain / count_),
                  across = static_cast<float>(to.factor_of(c) * sums.products / count_ * n.stretch);
      const float factor = to.factor_of(c);
      each_block(c, [&](std::int64_t at, std::int64_t count) {
        float block[kBlock];
        const float* const slope = before_relu(to, c, n, at, count, block);
        for (std::int64_t i = 0; i < count; ++i)
          to.out[at + i] =
              (factor * slope[i] - along - across * ((to.in[at + i] - n.center) * n.stretch)) *
              n.inverse;
      });
    });
  }

  void backward_global(Context& ctx, NormInput x, const Tensor& mean, const Tensor& variance,
                       const Tensor& dy, AfterNormBackward after, Tensor* dx) override {
    CHECK(!after.slope);
    if (blocked_.serves(after.g_factor.tensor != nullptr ? x.tensor : &dy))
      return blocked_.backward_global(ctx, x, mean, variance, dy, after, dx);
    // Without x no products are wanted.
    const bool products = after.g_factor.tensor != nullptr;
    const Backward to(products ? x.tensor->in() : dy.in(), dy, after, dx);
    const float *means = mean.in(), *variances = variance.in();
    each_channel(ctx, [&](std::int64_t c) {
      const Normal n(x, means[c], inverse_deviation(variances[c]));
      if (to.sums()) add_up(to, c, n);
      if (to.out == nullptr) return;
      const float factor = to.factor_of(c) * n.inverse;
      each_run(c, [&](std::int64_t at) {
        for (std::int64_t i = at; i < at + desc_.inner; ++i) to.out[i] = to.slope[i] * factor;
      });
    });
  }

 private:
  // A forward call's pointers; fetched before threads start.
  struct Forward {
    Forward(const Tensor& x, const AfterNorm& after, Tensor& y)
        : in(x.in()),
          factor(after.factor != nullptr ? after.factor->in() : nullptr),
          shift(after.shift != nullptr ? after.shift->in() : nullptr),
          slope(after.slope),
          normalized(after.normalized != nullptr ? after.normalized->out() : nullptr),
          out(y.out()) {}
    const float *in, *factor, *shift;
    std::optional<float> slope;
    float *normalized, *out;
  };

  // Makes a normalized number of a number of a backward pass's input.
  struct Normal {
    Normal(const NormInput& x, float mean, float inverse_deviation)
        : center(x.is_normalized ? 0 : mean),
          stretch(x.is_normalized ? 1 : inverse_deviation),
          inverse(inverse_deviation) {}
    float center, stretch, inverse;
  };

  // A backward call's pointers.
  struct Backward {
    Backward(const float* in, const Tensor& dy, const AfterNormBackward& after, Tensor* dx)
        : in(in),
          slope(dy.in()),
          factor(after.factor != nullptr ? after.factor->in() : nullptr),
          shift(after.shift != nullptr ? after.shift->in() : nullptr),
          relu(after.slope),
          out(dx != nullptr ? dx->out() : nullptr),
          g_factor(after.g_factor),
          g_shift(after.g_shift) {}
    bool sums() const { return g_factor.numbers != nullptr || g_shift.numbers != nullptr; }
    float factor_of(std::int64_t c) const { return factor != nullptr ? factor[c] : 1; }
    const float *in, *slope, *factor, *shift;
    std::optional<float> relu;
    float* out;
    SumTarget g_factor, g_shift;
  };

  // Returns the sums of the gradient, and of it times the centered input; puts those that are asked
  // for.
  PairSums add_up(const Backward& to, std::int64_t c, const Normal& n) const {
    PairSums sums;
    each_block(c, [&](std::int64_t at, std::int64_t count) {
      float block[kBlock];
      sums.add(before_relu(to, c, n, at, count, block), 0, to.in + at, n.center, count);
    });
    to.g_factor.put(c, sums.products * n.stretch);
    to.g_shift.put(c, sums.plain);
    return sums;
  }

  // Returns the gradient of what the ReLU got, of `count` numbers from `at` on: of what follows it,
  // in `block`; that of the call itself where there is no ReLU.
  static const float* before_relu(const Backward& to, std::int64_t c, const Normal& n,
                                  std::int64_t at, std::int64_t count, float* block) {
    if (!to.relu) return to.slope + at;
    const float factor = to.factor_of(c), shift = to.shift != nullptr ? to.shift[c] : 0,
                below = *to.relu;
    const float *const in = to.in + at, *const slope = to.slope + at;
    for (std::int64_t i = 0; i < count; ++i) {
      const float made = factor * ((in[i] - n.center) * n.stretch) + shift;
      block[i] = made > 0 ? slope[i] : below * slope[i];
    }
    return block;
  }

  float inverse_deviation(float variance) const { return 1 / std::sqrt(variance + desc_.eps); }

  void normalize(std::int64_t c, const Forward& to, float mean, float variance) const {
    const float inverse = inverse_deviation(variance);
    const float factor = to.factor != nullptr ? to.factor[c] : 1,
                shift = to.shift != nullptr ? to.shift[c] : 0;
    float* const normalized = to.normalized != nullptr ? to.normalized : to.out;
    each_block(c, [&](std::int64_t at, std::int64_t count) {
      const std::int64_t end = at + count;
      for (std::int64_t i = at; i < end; ++i) normalized[i] = (to.in[i] - mean) * inverse;
      if (to.factor != nullptr || normalized != to.out)
        for (std::int64_t i = at; i < end; ++i) to.out[i] = factor * normalized[i] + shift;
      if (to.slope) relu_in_place(*to.slope, to.out + at, count);
    });
  }

  template <class F>
  void each_channel(Context& ctx, F f) const {
    parallel_for(ctx.threads(), desc_.channels, grain_of(desc_.images * desc_.inner),
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t c = begin; c < end; ++c) f(c);
                 });
  }
  // Calls f(first number) for the run of `inner` numbers that each image has of channel c.
  template <class F>
  void each_run(std::int64_t c, F f) const {
    for (std::int64_t n = 0; n < desc_.images; ++n) f((n * desc_.channels + c) * desc_.inner);
  }

  static constexpr std::int64_t kBlock = 2048;  // stays in the first cache from step to step
  // Calls f(first number, how many) for each block of channel c's runs.
  template <class F>
  void each_block(std::int64_t c, F f) const {
    each_run(c, [&](std::int64_t run) {
      for (std::int64_t at = 0; at < desc_.inner; at += kBlock)
        f(run + at, std::min(kBlock, desc_.inner - at));
    });
  }

  BatchNormDesc desc_;
  BlockedBatchNorm blocked_;
  double count_;  // numbers of one channel
};

}  // namespace

const BatchNormImpl kBatchNorm{"plain", serves_all<BatchNormDesc>,
                               make_kernel<BatchNorm, BatchNormKernel, BatchNormDesc>};

}  // namespace shoal::ops::cpu
