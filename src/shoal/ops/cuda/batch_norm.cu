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

// All of what follows takes x, y and their gradients as `dims` of them lie in memory.

void measure(Context& ctx, const BroadcastDims& dims, const float* x, float* mean,
             float* variance) {
  const std::int64_t inner = dims.inner;
  const auto count = static_cast<double>(dims.outer * dims.inner);
  // Some number of the channel is taken off: squares stay small where the mean is large.
  sum_channels<TwoSums>(
      ctx, "batch normalization's sums", dims,
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

void normalize(Context& ctx, const BroadcastDims& dims, float eps, const float* x,
               const float* mean, const float* variance, float* y) {
  const ChannelOf channel(dims);
  each(ctx, "batch normalization", dims.outer * dims.dim * dims.inner,
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

void project(Context& ctx, const BroadcastDims& dims, const Normal& normal, const float* x,
             const float* dy, const Means& means) {
  const auto count = static_cast<double>(dims.outer * dims.inner);
  sum_channels<TwoSums>(
      ctx, "sums of batch normalization's gradient", dims,
      [=] __host__ __device__(std::int64_t i, std::int64_t c) {
        return TwoSums{dy[i], double{dy[i]} * (x[i] - normal.center(c))};
      },
      [=] __host__ __device__(std::int64_t c, TwoSums sums) {
        means.along[c] = static_cast<float>(sums.first / count);
        means.across[c] = static_cast<float>(sums.second / count * normal.stretch(c));
      });
}

void differentiate(Context& ctx, const BroadcastDims& dims, const Normal& normal, const float* x,
                   const float* dy, const Means& means, float* dx) {
  const ChannelOf channel(dims);
  each(ctx, "batch normalization's gradient", dims.outer * dims.dim * dims.inner,
       [=] __host__ __device__(std::int64_t i) {
         const std::int64_t c = channel(i);
         const float result = (x[i] - normal.center(c)) * normal.stretch(c);
         dx[i] = (dy[i] - means.along[c] - means.across[c] * result) * normal.factor(c);
       });
}

void scale_by_deviation(Context& ctx, const BroadcastDims& dims, float eps, const float* variance,
                        const float* dy, float* dx) {
  const ChannelOf channel(dims);
  each(ctx, "batch normalization's gradient", dims.outer * dims.dim * dims.inner,
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
    const Order order(dims_of(desc_), x.layout());
    const float* const in = read(ctx, x, order.layout);
    float *const means = write(ctx, mean), *const variances = write(ctx, variance);
    measure(ctx, order.dims, in, means, variances);
    normalize(ctx, order.dims, desc_.eps, in, means, variances, write(ctx, y, order.layout));
  }

  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance,
                      Tensor& y) override {
    const Order order(dims_of(desc_), x.layout());
    const float* const in = read(ctx, x, order.layout);
    normalize(ctx, order.dims, desc_.eps, in, read(ctx, mean), read(ctx, variance),
              write(ctx, y, order.layout));
  }

  void backward_batch(Context& ctx, const Tensor& x, bool x_is_normalized, const Tensor& mean,
                      const Tensor& variance, const Tensor& dy, Tensor& dx) override {
    const Order order(dims_of(desc_), common_layout(x, dy));
    const float *const in = read(ctx, x, order.layout), *const slope = read(ctx, dy, order.layout);
    const Normal normal{x_is_normalized ? nullptr : read(ctx, mean), read(ctx, variance),
                        desc_.eps};
    float* const along = reinterpret_cast<float*>(means_->data());
    const Means means{along, along + desc_.channels};
    project(ctx, order.dims, normal, in, slope, means);
    differentiate(ctx, order.dims, normal, in, slope, means, write(ctx, dx, order.layout));
  }

  void backward_global(Context& ctx, const Tensor& variance, const Tensor& dy,
                       Tensor& dx) override {
    const Order order(dims_of(desc_), dy.layout());
    const float *const variances = read(ctx, variance), *const slope = read(ctx, dy, order.layout);
    scale_by_deviation(ctx, order.dims, desc_.eps, variances, slope, write(ctx, dx, order.layout));
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
