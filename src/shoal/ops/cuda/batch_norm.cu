// Our own batch normalization on a CUDA device.
#include <cmath>
#include <memory>

#include "shoal/ops/cuda/channels.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/relu.h"

namespace shoal::ops::cuda {
namespace {

BroadcastDims dims_of(const BatchNormDesc& desc) {
  return {.outer = desc.images, .dim = desc.channels, .inner = desc.inner};
}

__host__ __device__ inline float inverse_deviation(float variance, float eps) {
  return 1 / std::sqrt(variance + eps);
}

// x as `dims` of it lie in memory.
void measure(Context& ctx, const BroadcastDims& dims, const float* x, float* mean, float* variance,
             const RunningSums& running) {
  const std::int64_t inner = dims.inner;
  float *sum_of_means = nullptr, *sum_of_variances = nullptr, *weight = nullptr;
  if (running.mean != nullptr) {
    sum_of_means = mut(ctx, *running.mean);
    sum_of_variances = mut(ctx, *running.variance);
    weight = mut(ctx, *running.weight);
  }
  const float fraction = running.fraction;
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
        if (weight == nullptr) return;
        const float unbiased = count > 1 ? static_cast<float>(count / (count - 1)) : 1.0f;
        sum_of_means[c] = sum_of_means[c] * fraction + mean[c];
        sum_of_variances[c] = sum_of_variances[c] * fraction + unbiased * variance[c];
        if (c == 0) *weight = *weight * fraction + 1;
      });
}

// Writes y, and after.normalized.
void normalize(Context& ctx, const Order& order, float eps, const float* x, const float* mean,
               const float* variance, const AfterNorm& after, Tensor& y) {
  const float* const factor = after.factor != nullptr ? read(ctx, *after.factor) : nullptr;
  const float* const shift = after.shift != nullptr ? read(ctx, *after.shift) : nullptr;
  float* const normalized =
      after.normalized != nullptr ? write(ctx, *after.normalized, order.layout) : nullptr;
  float* const out = write(ctx, y, order.layout);
  const Relu relu(after.slope);
  const ChannelOf channel(order.dims);
  each(ctx, "batch normalization", y.count(), [=] __host__ __device__(std::int64_t i) {
    const std::int64_t c = channel(i);
    float v = (x[i] - mean[c]) * inverse_deviation(variance[c], eps);
    if (normalized != nullptr) normalized[i] = v;
    if (factor != nullptr) v = factor[c] * v + (shift != nullptr ? shift[c] : 0.0f);
    out[i] = relu(v);
  });
}

// Of a number that was normalized: (v - center) * stretch is the result.
struct Normal {
  const float *mean, *variance;  // mean null: v is the result itself
  float eps;
  __host__ __device__ float inverse(std::int64_t c) const {
    return inverse_deviation(variance[c], eps);
  }
  __host__ __device__ float center(std::int64_t c) const {
    return mean == nullptr ? 0.0f : mean[c];
  }
  __host__ __device__ float stretch(std::int64_t c) const {
    return mean == nullptr ? 1.0f : inverse(c);
  }
};

// A backward call's input and gradient, as `dims` of them lie in memory.
struct Slopes {
  const float *x, *dy, *factor;  // factor null: ones
  BroadcastDims dims;
  Normal normal;
  __host__ __device__ float factor_of(std::int64_t c) const {
    return factor == nullptr ? 1.0f : factor[c];
  }
};

// along: the mean of the gradient of what was normalized; across: that of it times the result.
struct Means {
  float *along, *across;  // or null
};

// Also puts the sums that are asked for.
void add_up(Context& ctx, const Slopes& of, const AfterNormBackward& after, const Means& means) {
  const auto count = static_cast<double>(of.dims.outer * of.dims.inner);
  const SumTarget factors(ctx, after.g_factor), shifts(ctx, after.g_shift);
  sum_channels<TwoSums>(
      ctx, "sums of batch normalization's gradient", of.dims,
      [=] __host__ __device__(std::int64_t i, std::int64_t c) {
        return TwoSums{of.dy[i], double{of.dy[i]} * (of.x[i] - of.normal.center(c))};
      },
      [=] __host__ __device__(std::int64_t c, TwoSums sums) {
        const double products = sums.second * of.normal.stretch(c);
        factors.put(c, products);
        shifts.put(c, sums.first);
        if (means.along == nullptr) return;
        means.along[c] = static_cast<float>(of.factor_of(c) * sums.first / count);
        means.across[c] = static_cast<float>(of.factor_of(c) * products / count);
      });
}

void differentiate(Context& ctx, const Slopes& of, const Means& means, float* dx) {
  const ChannelOf channel(of.dims);
  each(ctx, "batch normalization's gradient", of.dims.outer * of.dims.dim * of.dims.inner,
       [=] __host__ __device__(std::int64_t i) {
         const std::int64_t c = channel(i);
         const float result = (of.x[i] - of.normal.center(c)) * of.normal.stretch(c);
         dx[i] = (of.factor_of(c) * of.dy[i] - means.along[c] - means.across[c] * result) *
                 of.normal.inverse(c);
       });
}

// With a mean and a variance that do not depend on x.
void scale_by_deviation(Context& ctx, const Slopes& of, float* dx) {
  const ChannelOf channel(of.dims);
  each(ctx, "batch normalization's gradient", of.dims.outer * of.dims.dim * of.dims.inner,
       [=] __host__ __device__(std::int64_t i) {
         const std::int64_t c = channel(i);
         dx[i] = of.factor_of(c) * of.dy[i] * of.normal.inverse(c);
       });
}

class BatchNorm final : public BatchNormKernel {
 public:
  BatchNorm(const BatchNormDesc& desc, const Device& device)
      : desc_(desc),
        means_(device.allocate(static_cast<std::size_t>(2 * desc.channels) * sizeof(float))) {}

  void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                     RunningSums running, AfterNorm after, Tensor& y) override {
    const Order order(dims_of(desc_), x.layout());
    const float* const in = read(ctx, x, order.layout);
    float *const means = write(ctx, mean), *const variances = write(ctx, variance);
    measure(ctx, order.dims, in, means, variances, running);
    normalize(ctx, order, desc_.eps, in, means, variances, after, y);
  }

  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance,
                      AfterNorm after, Tensor& y) override {
    const Order order(dims_of(desc_), x.layout());
    const float* const in = read(ctx, x, order.layout);
    normalize(ctx, order, desc_.eps, in, read(ctx, mean), read(ctx, variance), after, y);
  }

  void backward_batch(Context& ctx, NormInput x, const Tensor& mean, const Tensor& variance,
                      const Tensor& dy, AfterNormBackward after, Tensor* dx) override {
    const Order order(dims_of(desc_), common_layout(*x.tensor, dy));
    const Slopes of = slopes(ctx, order, x, mean, variance, dy, after);
    float* const along = reinterpret_cast<float*>(means_->data());
    const Means means{along, along + desc_.channels};
    add_up(ctx, of, after, means);
    if (dx != nullptr) differentiate(ctx, of, means, write(ctx, *dx, order.layout));
  }

  void backward_global(Context& ctx, NormInput x, const Tensor& mean, const Tensor& variance,
                       const Tensor& dy, AfterNormBackward after, Tensor* dx) override {
    // without x no products are wanted
    if (after.g_factor.tensor == nullptr) x = {&dy, false};
    const Order order(dims_of(desc_), common_layout(*x.tensor, dy));
    const Slopes of = slopes(ctx, order, x, mean, variance, dy, after);
    if (after.g_factor.tensor != nullptr || after.g_shift.tensor != nullptr)
      add_up(ctx, of, after, {nullptr, nullptr});
    if (dx != nullptr) scale_by_deviation(ctx, of, write(ctx, *dx, order.layout));
  }

 private:
  Slopes slopes(Context& ctx, const Order& order, const NormInput& x, const Tensor& mean,
                const Tensor& variance, const Tensor& dy, const AfterNormBackward& after) const {
    return {
        .x = read(ctx, *x.tensor, order.layout),
        .dy = read(ctx, dy, order.layout),
        .factor = after.factor != nullptr ? read(ctx, *after.factor) : nullptr,
        .dims = order.dims,
        .normal = {x.is_normalized ? nullptr : read(ctx, mean), read(ctx, variance), desc_.eps}};
  }

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
