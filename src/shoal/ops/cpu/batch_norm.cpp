#include <algorithm>
#include <cmath>
#include <cstdint>

#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

constexpr int kLanes = 8;

// Two sums over a run of numbers: of first(i) and of first(i) * second(i).
struct Sums {
  double plain = 0, product = 0;
  template <class First, class Second>
  void add(std::int64_t n, First first, Second second) {
    float plains[kLanes] = {}, products[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) {
        plains[lane] += first(i + lane);
        products[lane] += first(i + lane) * second(i + lane);
      }
    for (; i < n; ++i) {
      plains[0] += first(i);
      products[0] += first(i) * second(i);
    }
    for (int lane = 0; lane < kLanes; ++lane) plain += plains[lane], product += products[lane];
  }
};

class BatchNorm final : public BatchNormKernel {
 public:
  explicit BatchNorm(const BatchNormDesc& desc) : desc_(desc), count_(static_cast<double>(desc.images * desc.inner)) {}

  void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance, Tensor& y) override {
    const float* in = x.in();
    float *out = y.out(), *means = mean.out(), *variances = variance.out();
    each_channel(ctx, [&](std::int64_t c) {
      const float shift = in[c * desc_.inner];   // some number of the channel: keeps the squares small where the mean is large
      Sums sums;
      each_run(c, [&](std::int64_t at) {
        const auto shifted = [&](std::int64_t i) { return in[at + i] - shift; };
        sums.add(desc_.inner, shifted, shifted);
      });
      const double offset = sums.plain / count_;
      means[c] = static_cast<float>(shift + offset);
      variances[c] = static_cast<float>(std::max(0.0, sums.product / count_ - offset * offset));
      normalize(c, in, means[c], variances[c], out);
    });
  }

  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance, Tensor& y) override {
    const float *in = x.in(), *means = mean.in(), *variances = variance.in();
    float* out = y.out();
    each_channel(ctx, [&](std::int64_t c) { normalize(c, in, means[c], variances[c], out); });
  }

  void backward_batch(Context& ctx, const Tensor& x, bool x_is_normalized, const Tensor& mean, const Tensor& variance,
                      const Tensor& dy, Tensor& dx) override {
    const float *in = x.in(), *means = mean.in(), *variances = variance.in(), *slope = dy.in();
    float* out = dx.out();
    each_channel(ctx, [&](std::int64_t c) {
      const float factor = inverse_deviation(variances[c]);
      const float center = x_is_normalized ? 0 : means[c], stretch = x_is_normalized ? 1 : factor;
      Sums sums;
      each_run(c, [&](std::int64_t at) {
        const auto normal = [&](std::int64_t i) { return (in[at + i] - center) * stretch; };
        sums.add(desc_.inner, [&](std::int64_t i) { return slope[at + i]; }, normal);
      });
      const float along = static_cast<float>(sums.plain / count_), across = static_cast<float>(sums.product / count_);
      each_run(c, [&](std::int64_t at) {
        for (std::int64_t i = at; i < at + desc_.inner; ++i)
          out[i] = (slope[i] - along - across * ((in[i] - center) * stretch)) * factor;
      });
    });
  }

  void backward_global(Context& ctx, const Tensor& variance, const Tensor& dy, Tensor& dx) override {
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
    const std::int64_t grain = kElementGrain / std::max<std::int64_t>(1, desc_.images * desc_.inner) + 1;
    parallel_for(ctx.threads(), desc_.channels, grain, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) f(c);
    });
  }
  // f(first number) for the run of `inner` numbers that each image has of channel c.
  template <class F>
  void each_run(std::int64_t c, F f) const {
    for (std::int64_t n = 0; n < desc_.images; ++n) f((n * desc_.channels + c) * desc_.inner);
  }

  BatchNormDesc desc_;
  double count_;   // numbers of one channel
};

}  // namespace

const BatchNormImpl kBatchNorm{"plain", on_host<BatchNormDesc>, make_kernel<BatchNorm, BatchNormKernel, BatchNormDesc>};

}  // namespace shoal::ops::cpu
