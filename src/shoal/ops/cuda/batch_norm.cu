// Our own batch normalization on a CUDA device.
#include <cmath>
#include <memory>

#include "shoal/ops/cuda/channels.h"
#include "shoal/ops/cuda/impls.h"

namespace shoal::ops::cuda {
namespace {

BroadcastDims dims_of(const BatchNormDesc& desc) {
  return {.outer = desc.images, .dim = desc.channels, .inner = desc.inner};
}

__host__ __device__ inline float inverse_deviation(float variance, float eps) {
  return 1 / std::sqrt(variance + eps);
}

void measure(Context& ctx, const BatchNormDesc& desc, const float* x, float* mean,
             float* variance) {
  const std::int64_t inner = desc.inner;
  const auto count = static_cast<double>(desc.images * desc.inner);
  // Some number of the channel is taken off: squares stay small where the mean is large.
  sum_channels<TwoSums>(
      ctx, "batch normalization's sums", dims_of(desc),
      [=] __host__ __device__(std::int64_t i, std::int64_t c) {
        const double v = x[i] - x[c * inner];
        return TwoSums{v, v * v};
      },
      [=] __host__ __device__(std::int64_t c, TwoSums sums) {
        const double offset = sums.first / count, spread = sums.second / count - offset * offset;
        mean[c] = static_cast<float>(x[c * inner] + offset);
        variance[c] = static_cast<float>(spread < 0 ? 0.0 : spread);
      });
}

void normalize(Context& ctx, const BatchNormDesc& desc, const float* x, const float* mean,
               const float* variance, float* y) {
  const ChannelOf channel(dims_of(desc));
  const float eps = desc.eps;
  each(ctx, "batch normalization", desc.images * desc.channels * desc.inner,
       [=] __host__ __device__(std::int64_t i) {
         const std::int64_t c = channel(i);
         y[i] = (x[i] - mean[c]) * inverse_deviation(variance[c], eps);
       });
}

// Of a number that was normalized: (v - center) * stretch is the result.
struct Normal {
  const float *mean, *variance;  // mean null: v is the result itself
  float eps;
  __host__ __device__ float factor(std::int64_t c) const {
    return inverse_deviation(variance[c], eps);
  }
  __host__ __device__ float center(std::int64_t c) const {
    return mean == nullptr ? 0.0f : mean[c];
  }
  __host__ __device__ float stretch(std::int64_t c) const {
    return mean == nullptr ? 1.0f : factor(c);
  }
};

// along: the mean of dy; across: the mean of dy times the result.
struct Means {
  float *along, *across;
};

void project(Context& ctx, const BatchNormDesc& desc, const Normal& normal, const float* x,
             const float* dy, const Means& means) {
  const auto count = static_cast<double>(desc.images * desc.inner);
  sum_channels<TwoSums>(
      ctx, "sums of batch normalization's gradient", dims_of(desc),
      [=] __host__ __device__(std::int64_t i, std::int64_t c) {
        return TwoSums{dy[i], double{dy[i]} * (x[i] - normal.center(c))};
      },
      [=] __host__ __device__(std::int64_t c, TwoSums sums) {
        means.along[c] = static_cast<float>(sums.first / count);
        means.across[c] = static_cast<float>(sums.second / count * normal.stretch(c));
      });
}

void differentiate(Context& ctx, const BatchNormDesc& desc, const Normal& normal, const float* x,
                   const float* dy, const Means& means, float* dx) {
  const ChannelOf channel(dims_of(desc));
  each(ctx, "batch normalization's gradient", desc.images * desc.channels * desc.inner,
       [=] __host__ __device__(std::int64_t i) {
         const std::int64_t c = channel(i);
         const float result = (x[i] - normal.center(c)) * normal.stretch(c);
         dx[i] = (dy[i] - means.along[c] - means.across[c] * result) * normal.factor(c);
       });
}

void scale_by_deviation(Context& ctx, const BatchNormDesc& desc, const float* variance,
                        const float* dy, float* dx) {
  const ChannelOf channel(dims_of(desc));
  const float eps = desc.eps;
  each(ctx, "batch normalization's gradient", desc.images * desc.channels * desc.inner,
       [=] __host__ __device__(std::int64_t i) {
         dx[i] = dy[i] * inverse_deviation(variance[channel(i)], eps);
       });
}

class BatchNorm final : public BatchNormKernel {
 public:
  BatchNorm(const BatchNormDesc& desc, const Device& device)
      : desc_(desc),
        means_(device.allocate(static_cast<std::size_t>(2 * desc.channels) * sizeof(float))) {}

  void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                     Tensor& y) override {
    const float* const in = read(ctx, x);
    float *const means = write(ctx, mean), *const variances = write(ctx, variance);
    measure(ctx, desc_, in, means, variances);
    normalize(ctx, desc_, in, means, variances, write(ctx, y));
  }

  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance,
                      Tensor& y) override {
    const float* const in = read(ctx, x);
    normalize(ctx, desc_, in, read(ctx, mean), read(ctx, variance), write(ctx, y));
  }

  void backward_batch(Context& ctx, const Tensor& x, bool x_is_normalized, const Tensor& mean,
                      const Tensor& variance, const Tensor& dy, Tensor& dx) override {
    const float *const in = read(ctx, x), *const slope = read(ctx, dy);
    const Normal normal{x_is_normalized ? nullptr : read(ctx, mean), read(ctx, variance),
                        desc_.eps};
    float* const along = reinterpret_cast<float*>(means_->data());
    const Means means{along, along + desc_.channels};
    project(ctx, desc_, normal, in, slope, means);
    differentiate(ctx, desc_, normal, in, slope, means, write(ctx, dx));
  }

  void backward_global(Context& ctx, const Tensor& variance, const Tensor& dy,
                       Tensor& dx) override {
    const float *const variances = read(ctx, variance), *const slope = read(ctx, dy);
    scale_by_deviation(ctx, desc_, variances, slope, write(ctx, dx));
  }

 private:
  BatchNormDesc desc_;
  std::shared_ptr<Memory> means_;  // the last backward's Means; scratch is taken by its sums
};

}  // namespace

const BatchNormImpl kBatchNorm{
    "cuda", [](const BatchNormDesc&, const Context&) { return kYes; },
    [](const BatchNormDesc& desc, Context& ctx) -> std::unique_ptr<BatchNormKernel> {
      return std::make_unique<BatchNorm>(desc, ctx.device());
    }};

}  // namespace shoal::ops::cuda
