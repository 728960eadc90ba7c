// Losses of single instances, on a CUDA device.
#include "shoal/ops/instance_loss.h"

#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {
namespace {

// The numbers that a smooth L1 loss compares, and their weights, which may be null.
struct Compared {
  Compared(Context& ctx, const Tensor& a_tensor, const Tensor& b_tensor, const Tensor* in,
           const Tensor* out)
      : a(read(ctx, a_tensor)),
        b(read(ctx, b_tensor)),
        inside(in != nullptr ? read(ctx, *in) : nullptr),
        outside(out != nullptr ? read(ctx, *out) : nullptr) {
    for (const Tensor* other : {&b_tensor, in, out})
      CHECK(other == nullptr || other->count() == a_tensor.count())
          << a_tensor.shape().str() << " and " << (other != nullptr ? other->shape().str() : "");
  }
  __host__ __device__ float in(std::int64_t i) const {
    return inside != nullptr ? inside[i] : 1.0f;
  }
  __host__ __device__ float out(std::int64_t i) const {
    return outside != nullptr ? outside[i] : 1.0f;
  }
  const float *a, *b, *inside, *outside;
};

}  // namespace

void smooth_l1(Context& ctx, float sigma, const Tensor& a, const Tensor& b, const Tensor* inside,
               const Tensor* outside, Tensor& errors) {
  const Compared x(ctx, a, b, inside, outside);
  float* const to = write(ctx, errors);
  const float sigma2 = sigma * sigma;
  each(ctx, "smooth L1 loss", a.count(), [=] __host__ __device__(std::int64_t i) {
    to[i] = x.out(i) * smooth_l1_of(x.in(i) * (x.a[i] - x.b[i]), sigma2);
  });
}

void smooth_l1_backward(Context& ctx, float sigma, float scale, const Tensor& a, const Tensor& b,
                        const Tensor* inside, const Tensor* outside, Tensor& da) {
  const Compared x(ctx, a, b, inside, outside);
  float* const to = write(ctx, da);
  const float sigma2 = sigma * sigma;
  each(ctx, "smooth L1 loss's gradient", a.count(), [=] __host__ __device__(std::int64_t i) {
    const float in = x.in(i);
    to[i] = scale * smooth_l1_slope(in * (x.a[i] - x.b[i]), sigma2) * in * x.out(i);
  });
}

void sum_channels(Context& ctx, std::int64_t outer, std::int64_t channels, std::int64_t inner,
                  const Tensor& x, Tensor& y) {
  CHECK(x.count() == outer * channels * inner && y.count() == outer * inner)
      << x.shape().str() << " and " << y.shape().str();
  const float* const in = read(ctx, x);
  float* const out = write(ctx, y);
  const Divisor by(inner);
  each(ctx, "sums over channels", outer * inner, [=] __host__ __device__(std::int64_t i) {
    const float* const first = in + i / by * channels * inner + i % by;
    float sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) sum += first[c * inner];
    out[i] = sum;
  });
}

void log_losses(Context& ctx, const ClassDesc& desc, const Tensor& probs, const Tensor& labels,
                float floor, Tensor& losses) {
  CHECK(probs.count() == desc.items() * desc.classes && labels.count() == desc.items() &&
        losses.count() == desc.items())
      << probs.shape().str() << ", " << labels.shape().str() << " and " << losses.shape().str();
  const float *const p = read(ctx, probs), *const of = read(ctx, labels);
  float* const out = write(ctx, losses);
  const bool ignores = desc.ignore.has_value();
  const float ignored = ignores ? static_cast<float>(*desc.ignore) : 0.0f;
  const std::int64_t classes = desc.classes, inner = desc.inner;
  const Divisor by(inner);
  each(ctx, "log losses", desc.items(), [=] __host__ __device__(std::int64_t item) {
    const float label = of[item];
    const bool counts =
        label >= 0 && label < static_cast<float>(classes) && !(ignores && label == ignored);
    const std::int64_t at = counts ? static_cast<std::int64_t>(label) : 0;
    const float prob = p[(item / by * classes + at) * inner + item % by];
    out[item] = counts ? -std::log(prob < floor ? floor : prob) : 0.0f;
  });
}

}  // namespace shoal::ops::cuda
