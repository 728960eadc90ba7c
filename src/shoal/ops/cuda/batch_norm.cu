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

// x in this order.
void measure(Context& ctx, const Order& order, const void* x, float* mean, float* variance,
             const RunningSums& running) {
  const std::int64_t inner = order.dims.inner;
  const Reader some{x, order.type};
  float *sum_of_means = nullptr, *sum_of_variances = nullptr, *weight = nullptr;
  if (running.mean != nullptr) {
    sum_of_means = mut(ctx, *running.mean);
    sum_of_variances = mut(ctx, *running.variance);
    weight = mut(ctx, *running.weight);
  }
  const float fraction = running.fraction;
  const auto count = static_cast<double>(order.dims.outer * inner);
  // Some number of the channel is taken off: squares stay small where the mean is large.
  sum_channels<TwoSums>(
      ctx, "batch normalization's sums", order,
      [=] __host__ __device__(std::int64_t c, float number) {
        const double v = number - some[c * inner];
        return TwoSums{v, v * v};
      },
      [=] __host__ __device__(std::int64_t c, TwoSums sums) {
        const double offset = sums.first / count, spread = sums.second / count - offset * offset;
        mean[c] = static_cast<float>(some[c * inner] + offset);
        variance[c] = static_cast<float>(spread < 0 ? 0.0 : spread);
        if (weight == nullptr) return;
        const float unbiased = count > 1 ? static_cast<float>(count / (count - 1)) : 1.0f;
        sum_of_means[c] = sum_of_means[c] * fraction + mean[c];
        sum_of_variances[c] = sum_of_variances[c] * fraction + unbiased * variance[c];
        if (c == 0) *weight = *weight * fraction + 1;
      },
      x);
}

// Writes y, and after.normalized.
void normalize(Context& ctx, const Order& order, float eps, const void* x, const float* mean,
               const float* variance, const AfterNorm& after, Tensor& y) {
  constexpr const char* kName = "batch normalization";
  const float* const factor = after.factor != nullptr ? read(ctx, *after.factor) : nullptr;
  const float* const shift = after.shift != nullptr ? read(ctx, *after.shift) : nullptr;
  void* const normalized =
      after.normalized != nullptr ? after.normalized->write(ctx, order.layout) : nullptr;
  void* const out = y.write(ctx, order.layout);
  const Relu relu(after.slope);
  const ChannelOf channel(order.dims);
  const auto results = [=] __host__ __device__(std::int64_t i, float number) {
    const std::int64_t c = channel(i);
    const float v = (number - mean[c]) * inverse_deviation(variance[c], eps);
    const float scaled =
        factor != nullptr ? factor[c] * v + (shift != nullptr ? shift[c] : 0.0f) : v;
    return TwoFloats{relu(scaled), v};
  };
  if (normalized != nullptr)
    return map_each(ctx, kName, order.type, y.count(), results, TwoTargets<void>{out, normalized},
                    x);
  map_each(
      ctx, kName, order.type, y.count(),
      [=] __host__ __device__(std::int64_t i, float number) { return results(i, number).first; },
      out, x);
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

// A backward call's input and gradient, both in this order.
struct Slopes {
  const void *x, *dy;
  const float* factor;  // null: ones
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
void add_up(Context& ctx, const Order& order, const Slopes& of, const AfterNormBackward& after,
            const Means& means) {
  const auto count = static_cast<double>(order.dims.outer * order.dims.inner);
  const SumTarget factors(ctx, after.g_factor), shifts(ctx, after.g_shift);
  sum_channels<TwoSums>(
      ctx, "sums of batch normalization's gradient", order,
      [=] __host__ __device__(std::int64_t c, float x, float dy) {
        return TwoSums{dy, double{dy} * (x - of.normal.center(c))};
      },
      [=] __host__ __device__(std::int64_t c, TwoSums sums) {
        const double products = sums.second * of.normal.stretch(c);
        factors.put(c, products);
        shifts.put(c, sums.first);
        if (means.along == nullptr) return;
        means.along[c] = static_cast<float>(of.factor_of(c) * sums.first / count);
        means.across[c] = static_cast<float>(of.factor_of(c) * products / count);
      },
      of.x, of.dy);
}

void differentiate(Context& ctx, const Order& order, const Slopes& of, const Means& means,
                   Tensor& dx) {
  const ChannelOf channel(order.dims);
  map_each(
      ctx, "batch normalization's gradient", order.type, dx.count(),
      [=] __host__ __device__(std::int64_t i, float x, float dy) {
        const std::int64_t c = channel(i);
        const float result = (x - of.normal.center(c)) * of.normal.stretch(c);
        return (of.factor_of(c) * dy - means.along[c] - means.across[c] * result) *
               of.normal.inverse(c);
      },
      dx.write(ctx, order.layout), of.x, of.dy);
}

// With a mean and a variance that do not depend on x.
void scale_by_deviation(Context& ctx, const Order& order, const Slopes& of, Tensor& dx) {
  const ChannelOf channel(order.dims);
  map_each(
      ctx, "batch normalization's gradient", order.type, dx.count(),
      [=] __host__ __device__(std::int64_t i, float dy) {
        const std::int64_t c = channel(i);
        return of.factor_of(c) * dy * of.normal.inverse(c);
      },
      dx.write(ctx, order.layout), of.dy);
}

class BatchNorm final : public BatchNormKernel {
 public:
  BatchNorm(const BatchNormDesc& desc, const Device& device)
      : desc_(desc),
        means_(device.allocate(static_cast<std::size_t>(2 * desc.channels) * sizeof(float))) {}

  void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                     RunningSums running, AfterNorm after, Tensor& y) override {
    const Order order(dims_of(desc_), x.layout());
    const void* const in = x.read(ctx, order.layout);
    float *const means = write(ctx, mean), *const variances = write(ctx, variance);
    measure(ctx, order, in, means, variances, running);
    normalize(ctx, order, desc_.eps, in, means, variances, after, y);
  }

  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance,
                      AfterNorm after, Tensor& y) override {
    const Order order(dims_of(desc_), x.layout());
    const void* const in = x.read(ctx, order.layout);
    normalize(ctx, order, desc_.eps, in, read(ctx, mean), read(ctx, variance), after, y);
  }

  void backward_batch(Context& ctx, NormInput x, const Tensor& mean, const Tensor& variance,
                      const Tensor& dy, AfterNormBackward after, Tensor* dx) override {
    const Order order(dims_of(desc_), common_layout(*x.tensor, dy));
    const Slopes of = slopes(ctx, order, x, mean, variance, dy, after);
    float* const along = reinterpret_cast<float*>(means_->data());
    const Means means{along, along + desc_.channels};
    add_up(ctx, order, of, after, means);
    if (dx != nullptr) differentiate(ctx, order, of, means, *dx);
  }

  void backward_global(Context& ctx, NormInput x, const Tensor& mean, const Tensor& variance,
                       const Tensor& dy, AfterNormBackward after, Tensor* dx) override {
    // without x no products are wanted
    if (after.g_factor.tensor == nullptr) x = {&dy, false};
    const Order order(dims_of(desc_), common_layout(*x.tensor, dy));
    const Slopes of = slopes(ctx, order, x, mean, variance, dy, after);
    if (after.g_factor.tensor != nullptr || after.g_shift.tensor != nullptr)
      add_up(ctx, order, of, after, {nullptr, nullptr});
    if (dx != nullptr) scale_by_deviation(ctx, order, of, *dx);
  }

 private:
  Slopes slopes(Context& ctx, const Order& order, const NormInput& x, const Tensor& mean,
                const Tensor& variance, const Tensor& dy, const AfterNormBackward& after) const {
    return {
        .x = x.tensor->read(ctx, order.layout),
        .dy = dy.read(ctx, order.layout),
        .factor = after.factor != nullptr ? read(ctx, *after.factor) : nullptr,
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
