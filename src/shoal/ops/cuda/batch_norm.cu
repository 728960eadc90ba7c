// Our own batch normalization on a CUDA device.
#include <cmath>
#include <memory>

#include "shoal/ops/cuda/channel_sums.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/relu.h"

namespace shoal::ops::cuda {
namespace {

BroadcastDims dims_of(const BatchNormDesc& desc) {
  return {.outer = desc.images, .dim = desc.channels, .inner = desc.inner};
}

// Normalizes a channel's numbers in a forward pass: (x - center) * inverse * factor + shift.
struct alignas(16) Normalization {
  float center, inverse, factor, shift;
};
// Turns a channel's numbers into what a ReLU got, and a gradient into the one before the ReLU.
struct alignas(16) Gate {
  float center, stretch, factor, shift;
  __host__ __device__ float operator()(const Relu& relu, float x, float dy) const {
    return relu.backward(factor * ((x - center) * stretch) + shift, dy);
  }
};
// The same where there is no ReLU.
struct NoGate {
  float center;
  __host__ __device__ float operator()(const Relu&, float, float dy) const { return dy; }
};
// Makes a channel's gradient in a backward pass: gain * dy - offset - bend * (x - center).
template <class G>
struct alignas(16) Slope {
  G gate;
  float gain, bend, offset;
};

__host__ __device__ inline float inverse_deviation(float variance, float eps) {
  return 1 / std::sqrt(variance + eps);
}

// Makes a channel's Normalization of its mean and variance.
struct Normalizing {
  Normalizing(Context& ctx, float eps, const AfterNorm& after)
      : eps(eps),
        factor(after.factor != nullptr ? read(ctx, *after.factor) : nullptr),
        shift(after.shift != nullptr ? read(ctx, *after.shift) : nullptr) {}
  __host__ __device__ Normalization of(std::int64_t c, float mean, float variance) const {
    return {mean, inverse_deviation(variance, eps), factor != nullptr ? factor[c] : 1.0f,
            shift != nullptr ? shift[c] : 0.0f};
  }
  float eps;
  const float *factor, *shift;  // or null
};

// Measures x, which is in this order. Puts each channel's mean, variance and Normalization.
void measure(Context& ctx, const Order& order, const void* x, float* mean, float* variance,
             const RunningSums& running, const Normalizing& normalizing, Normalization* channels) {
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
      [=] __host__ __device__(std::int64_t c) { return some[c * inner]; },
      [=] __host__ __device__(float one, float number) {
        const float v = number - one;
        return TwoFloats{v, v * v};
      },
      [=] __host__ __device__(std::int64_t c, TwoSums sums) {
        const double offset = sums.first / count, spread = sums.second / count - offset * offset;
        mean[c] = static_cast<float>(some[c * inner] + offset);
        variance[c] = static_cast<float>(spread < 0 ? 0.0 : spread);
        channels[c] = normalizing.of(c, mean[c], variance[c]);
        if (weight == nullptr) return;
        const float unbiased = count > 1 ? static_cast<float>(count / (count - 1)) : 1.0f;
        sum_of_means[c] = sum_of_means[c] * fraction + mean[c];
        sum_of_variances[c] = sum_of_variances[c] * fraction + unbiased * variance[c];
        if (c == 0) *weight = *weight * fraction + 1;
      },
      x);
}

// Writes y, and after.normalized.
void normalize(Context& ctx, const Order& order, const Normalization* channels, const void* x,
               const AfterNorm& after, Tensor& y) {
  constexpr const char* kName = "batch normalization";
  void* const normalized =
      after.normalized != nullptr ? after.normalized->write(ctx, order.layout) : nullptr;
  void* const out = y.write(ctx, order.layout);
  const Relu relu(after.slope);
  const auto results = [=] __host__ __device__(const Normalization& of, float number) {
    const float v = (number - of.center) * of.inverse;
    return TwoFloats{relu(of.factor * v + of.shift), v};
  };
  if (normalized != nullptr)
    return map_channels(ctx, kName, order, channels, results, TwoTargets<void>{out, normalized}, x);
  map_channels(
      ctx, kName, order, channels,
      [=] __host__ __device__(const Normalization& of, float number) {
        return results(of, number).first;
      },
      out, x);
}

// A backward call's input and gradient, both in this order.
struct Slopes {
  const void *x, *dy;
  const float *factor, *shift;   // null: ones, zeros
  const float *mean, *variance;  // mean null: x is what was normalized
  float eps;
  Relu relu;
  __host__ __device__ float inverse(std::int64_t c) const {
    return inverse_deviation(variance[c], eps);
  }
  __host__ __device__ float stretch(std::int64_t c) const {
    return mean == nullptr ? 1.0f : inverse(c);
  }
  __host__ __device__ float factor_of(std::int64_t c) const {
    return factor == nullptr ? 1.0f : factor[c];
  }
  __host__ __device__ void get(std::int64_t c, NoGate& gate) const {
    gate = {mean == nullptr ? 0.0f : mean[c]};
  }
  __host__ __device__ void get(std::int64_t c, Gate& gate) const {
    gate = {mean == nullptr ? 0.0f : mean[c], stretch(c), factor_of(c),
            shift == nullptr ? 0.0f : shift[c]};
  }
  // `along` is the mean of the gradient of what was normalized; `across` that of it times the
  // result.
  template <class G>
  __host__ __device__ Slope<G> slope(std::int64_t c, float along, float across) const {
    G gate;
    get(c, gate);
    return {gate, factor_of(c) * inverse(c), across * stretch(c) * inverse(c), along * inverse(c)};
  }
};

// Puts the sums that are asked for, and each channel's Slope; channels null: that not.
template <class G>
void add_up(Context& ctx, const Order& order, const Slopes& of, const AfterNormBackward& after,
            Slope<G>* channels) {
  const auto count = static_cast<double>(order.dims.outer * order.dims.inner);
  const SumTarget factors(ctx, after.g_factor), shifts(ctx, after.g_shift);
  sum_channels<TwoSums>(
      ctx, "sums of batch normalization's gradient", order,
      [=] __host__ __device__(std::int64_t c) {
        G gate;
        of.get(c, gate);
        return gate;
      },
      [=] __host__ __device__(const G& gate, float x, float dy) {
        const float slope = gate(of.relu, x, dy);
        return TwoFloats{slope, slope * (x - gate.center)};
      },
      [=] __host__ __device__(std::int64_t c, TwoSums sums) {
        const double products = sums.second * of.stretch(c);
        factors.put(c, products);
        shifts.put(c, sums.first);
        if (channels != nullptr)
          channels[c] = of.slope<G>(c, static_cast<float>(of.factor_of(c) * sums.first / count),
                                    static_cast<float>(of.factor_of(c) * products / count));
      },
      of.x, of.dy);
}

template <class G>
void differentiate(Context& ctx, const Order& order, const Slopes& of, const Slope<G>* channels,
                   Tensor& dx) {
  map_channels(
      ctx, "batch normalization's gradient", order, channels,
      [=] __host__ __device__(const Slope<G>& slope, float x, float dy) {
        return slope.gain * slope.gate(of.relu, x, dy) - slope.offset -
               slope.bend * (x - slope.gate.center);
      },
      dx.write(ctx, order.layout), of.x, of.dy);
}

// Goes backward with a mean and a variance that do not depend on x.
void scale_by_deviation(Context& ctx, const Order& order, const Slopes& of, Slope<NoGate>* channels,
                        Tensor& dx) {
  each(ctx, "batch normalization's factors", order.dims.dim,
       [=] __host__ __device__(std::int64_t c) { channels[c] = of.slope<NoGate>(c, 0, 0); });
  map_channels(
      ctx, "batch normalization's gradient", order, channels,
      [=] __host__ __device__(const Slope<NoGate>& slope, float dy) { return slope.gain * dy; },
      dx.write(ctx, order.layout), of.dy);
}

class BatchNorm final : public BatchNormKernel {
 public:
  BatchNorm(const BatchNormDesc& desc, const Device& device)
      : desc_(desc),
        channels_(device.allocate(static_cast<std::size_t>(desc.channels) * sizeof(Slope<Gate>))) {}

  void forward_batch(Context& ctx, const Tensor& x, Tensor& mean, Tensor& variance,
                     RunningSums running, AfterNorm after, Tensor& y) override {
    const Order order(dims_of(desc_), x.layout());
    const void* const in = x.read(ctx, order.layout);
    auto* const channels = of_channels<Normalization>();
    measure(ctx, order, in, write(ctx, mean), write(ctx, variance), running,
            Normalizing(ctx, desc_.eps, after), channels);
    normalize(ctx, order, channels, in, after, y);
  }

  void forward_global(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& variance,
                      AfterNorm after, Tensor& y) override {
    const Order order(dims_of(desc_), x.layout());
    const void* const in = x.read(ctx, order.layout);
    const float *const means = read(ctx, mean), *const variances = read(ctx, variance);
    const Normalizing normalizing(ctx, desc_.eps, after);
    auto* const channels = of_channels<Normalization>();
    each(ctx, "batch normalization's factors", desc_.channels,
         [=] __host__ __device__(std::int64_t c) {
           channels[c] = normalizing.of(c, means[c], variances[c]);
         });
    normalize(ctx, order, channels, in, after, y);
  }

  void backward_batch(Context& ctx, NormInput x, const Tensor& mean, const Tensor& variance,
                      const Tensor& dy, AfterNormBackward after, Tensor* dx) override {
    const Order order(dims_of(desc_), common_layout(*x.tensor, dy));
    const Slopes of = slopes(ctx, order, x, mean, variance, dy, after);
    const auto pass = [&](auto* channels) {
      add_up(ctx, order, of, after, channels);
      if (dx != nullptr) differentiate(ctx, order, of, channels, *dx);
    };
    after.slope ? pass(of_channels<Slope<Gate>>()) : pass(of_channels<Slope<NoGate>>());
  }

  void backward_global(Context& ctx, NormInput x, const Tensor& mean, const Tensor& variance,
                       const Tensor& dy, AfterNormBackward after, Tensor* dx) override {
    CHECK(!after.slope);
    // Without x no products are wanted.
    if (after.g_factor.tensor == nullptr) x = {&dy, false};
    const Order order(dims_of(desc_), common_layout(*x.tensor, dy));
    const Slopes of = slopes(ctx, order, x, mean, variance, dy, after);
    if (after.g_factor.tensor != nullptr || after.g_shift.tensor != nullptr)
      add_up<NoGate>(ctx, order, of, after, nullptr);
    if (dx != nullptr) scale_by_deviation(ctx, order, of, of_channels<Slope<NoGate>>(), *dx);
  }

 private:
  template <class T>
  T* of_channels() const {
    return reinterpret_cast<T*>(channels_->data());
  }
  Slopes slopes(Context& ctx, const Order& order, const NormInput& x, const Tensor& mean,
                const Tensor& variance, const Tensor& dy, const AfterNormBackward& after) const {
    return {.x = x.tensor->read(ctx, order.layout),
            .dy = dy.read(ctx, order.layout),
            .factor = after.factor != nullptr ? read(ctx, *after.factor) : nullptr,
            .shift = after.shift != nullptr ? read(ctx, *after.shift) : nullptr,
            .mean = x.is_normalized ? nullptr : read(ctx, mean),
            .variance = read(ctx, variance),
            .eps = desc_.eps,
            .relu = Relu(after.slope)};
  }

  BatchNormDesc desc_;
  std::shared_ptr<Memory> channels_;  // of the call under way: its Normalizations or Slopes
};

}  // namespace

const BatchNormImpl kBatchNorm{
    "cuda", [](const BatchNormDesc&, const Context&) { return kYes; },
    [](const BatchNormDesc& desc, Context& ctx) -> std::unique_ptr<BatchNormKernel> {
      return std::make_unique<BatchNorm>(desc, ctx.device());
    }};

}  // namespace shoal::ops::cuda
