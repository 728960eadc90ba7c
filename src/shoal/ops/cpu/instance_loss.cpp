#include "shoal/ops/instance_loss.h"

#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

void check_same(const Tensor& a, const Tensor* b) {
  CHECK(b == nullptr || a.count() == b->count())
      << a.shape().str() << " and " << (b ? b->shape().str() : "");
}

// Calls f(i, d, weight outside) for each number of a and b.
template <class F>
void each_error(Context& ctx, const Tensor& a, const Tensor& b, const Tensor* inside,
                const Tensor* outside, F f) {
  for (const Tensor* other : {&b, inside, outside}) check_same(a, other);
  const float *left = a.in(), *right = b.in(), *in = inside ? inside->in() : nullptr,
              *out = outside ? outside->in() : nullptr;
  parallel_for(ctx.threads(), a.count(), kElementGrain,
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const float weight = in ? in[i] : 1.0f;
                   f(i, weight * (left[i] - right[i]), weight, out ? out[i] : 1.0f);
                 }
               });
}

}  // namespace

void smooth_l1(Context& ctx, float sigma, const Tensor& a, const Tensor& b, const Tensor* inside,
               const Tensor* outside, Tensor& errors) {
  check_same(a, &errors);
  float* const to = errors.out();
  const float sigma2 = sigma * sigma;
  each_error(ctx, a, b, inside, outside, [=](std::int64_t i, float d, float, float weight) {
    to[i] = weight * smooth_l1_of(d, sigma2);
  });
}

void smooth_l1_backward(Context& ctx, float sigma, float scale, const Tensor& a, const Tensor& b,
                        const Tensor* inside, const Tensor* outside, Tensor& da) {
  check_same(a, &da);
  float* const to = da.out();
  const float sigma2 = sigma * sigma;
  each_error(ctx, a, b, inside, outside, [=](std::int64_t i, float d, float in, float out) {
    to[i] = scale * smooth_l1_slope(d, sigma2) * in * out;
  });
}

void sum_channels(Context& ctx, std::int64_t outer, std::int64_t channels, std::int64_t inner,
                  const Tensor& x, Tensor& y) {
  CHECK(x.count() == outer * channels * inner && y.count() == outer * inner)
      << x.shape().str() << " and " << y.shape().str();
  const float* const in = x.in();
  float* const out = y.out();
  parallel_for(ctx.threads(), outer, grain_of(channels * inner),
               [=](int, std::int64_t begin, std::int64_t end) {
                 for (std::int64_t n = begin; n < end; ++n)
                   for (std::int64_t s = 0; s < inner; ++s) {
                     float sum = 0;
                     for (std::int64_t c = 0; c < channels; ++c)
                       sum += in[(n * channels + c) * inner + s];
                     out[n * inner + s] = sum;
                   }
               });
}

void log_losses(Context&, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
                float floor, Tensor& each) {
  CHECK(probs.count() == desc.items() * desc.classes && labels.count() == desc.items() &&
        each.count() == desc.items())
      << probs.shape().str() << ", " << labels.shape().str() << " and " << each.shape().str();
  const float *const p = probs.in(), *const of = labels.in();
  float* const out = each.out();
  for (std::int64_t item = 0; item < desc.items(); ++item) {
    const float label = of[item];
    const bool counts = label >= 0 && label < static_cast<float>(desc.classes) &&
                        !(desc.ignore && label == static_cast<float>(*desc.ignore));
    out[item] = 0;
    if (!counts) continue;
    const auto at = static_cast<std::int64_t>(label);
    const float prob = p[(item / desc.inner * desc.classes + at) * desc.inner + item % desc.inner];
    out[item] = -std::log(prob < floor ? floor : prob);
  }
}

}  // namespace shoal::ops::cpu
