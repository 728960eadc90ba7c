#include <algorithm>
#include <cmath>
#include <cstdint>

#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/pair_sums.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

class BatchNorm final : public BatchNormKernel {
 public:
  explicit BatchNorm(const BatchNormDesc& desc)
      : desc_(desc), count_(static_cast<double>(desc.images * desc.inner)) {}

  void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                     Tensor& y) override {
    const float* in = x.in();
    float *out = y.out(), *means = mean.out(), *variances = variance.out();
    each_channel(ctx, [&](std::int64_t c) {
      // some number of the channel: keeps the squares small where the mean is large
      const float shift = in[c * desc_.inner];
      PairSums sums;
      each_run(c, [&](std::int64_t at) { sums.add(in + at, shift, in + at, shift, desc_.inner); });
      const double offset = sums.plain / count_;
      means[c] = static_cast<float>(shift + offset);
      variances[c] = static_cast<float>(std::max(0.0, sums.products / count_ - offset * offset));
      normalize(c, in, means[c], variances[c], out);
    });
  }

  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance,
                      Tensor& y) override {
    const float *in = x.in(), *means = mean.in(), *variances = variance.in();
    float* out = y.out();
    each_channel(ctx, [&](std::int64_t c) { normalize(c, in, means[c], variances[c], out); });
  }

  void backward_batch(Context& ctx, const Tensor& x, bool x_is_normalized, const Tensor& mean,
                      const Tensor& variance, const Tensor& dy, Tensor& dx) override {
    const float *in = x.in(), *means = mean.in(), *variances = variance.in(), *slope = dy.in();
    float* out = dx.out();
    each_channel(ctx, [&](std::int64_t c) {
      const float factor = inverse_deviation(variances[c]);
      const float center = x_is_normalized ? 0 : means[c], stretch = x_is_normalized ? 1 : factor;
      PairSums sums;
      each_run(c, [&](std::int64_t at) { sums.add(slope + at, 0, in + at, center, desc_.inner); });
      const float along = static_cast<float>(sums.plain / count_),
                  across = static_cast<float>(sums.products / count_ * stretch);
      each_run(c, [&](std::int64_t at) {
        for (std::int64_t i = at; i < at + desc_.inner; ++i)
          out[i] = (slope[i] - along - across * ((in[i] - center) * stretch)) * factor;
      });
    });
  }

  void backward_global(Context& ctx, const Tensor& variance, const Tensor& dy,
                       Tensor& dx) override {
    const float *variances = variance.in(), *slope = dy.in();
    float* out = dx.out();
    each_channel(ctx, [&](std::int64_t c) {
      const float factor = inverse_deviation(variances[c]);
      each_run(c, [&](std::int64_t at) {
        for (std::int64_t i = at; i < at + desc_.inner; ++i) out[i] = slope[i] * factor;
      });
    });
  }

 private:
  float inverse_deviation(float variance) const { return 1 / std::sqrt(variance + desc_.eps); }

  void normalize(std::int64_t c, const float* in, float mean, float variance, float* out) const {
    const float factor = inverse_deviation(variance);
    each_run(c, [&](std::int64_t at) {
      for (std::int64_t i = at; i < at + desc_.inner; ++i) out[i] = (in[i] - mean) * factor;
    });
  }

  template <class F>
  void each_channel(Context& ctx, F f) const {
    const std::int64_t grain =
        kElementGrain / std::max<std::int64_t>(1, desc_.images * desc_.inner) + 1;
    parallel_for(ctx.threads(), desc_.channels, grain,
                 [&](int, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t c = begin; c < end; ++c) f(c);
                 });
  }
  // f(first number) for the run of `inner` numbers that each image has of channel c.
  template <class F>
  void each_run(std::int64_t c, F f) const {
    for (std::int64_t n = 0; n < desc_.images; ++n) f((n * desc_.channels + c) * desc_.inner);
  }

  BatchNormDesc desc_;
  double count_;  // numbers of one channel
};

}  // namespace

const BatchNormImpl kBatchNorm{"plain", serves_all<BatchNormDesc>,
                               make_kernel<BatchNorm, BatchNormKernel, BatchNormDesc>};

}  // namespace shoal::ops::cpu
