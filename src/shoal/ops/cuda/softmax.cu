// Our own softmax on a CUDA device.
#include <cmath>
#include <memory>

#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/launch.h"
#include "shoal/ops/softmax.h"

namespace shoal::ops::cuda {
namespace {

// The largest of the numbers met. It may miss a NaN, which is in the sum all the same.
struct Most {
  bool some;
  float value;
};
struct Larger {
  __host__ __device__ Most operator()(Most a, Most b) const {
    if (!a.some || !b.some) return a.some ? a : b;
    return a.value < b.value ? b : a;
  }
};

// Finds the numbers of a column of channels: place (o, i) is number o * inner + i.
struct Columns {
  explicit Columns(const SoftmaxDesc& desc)
      : channels(desc.channels), inner(desc.inner), classes(desc.channels) {}
  __host__ __device__ std::int64_t at(std::int64_t place, std::int64_t c) const {
    return (place / inner * channels + c) * inner.value() + place % inner;
  }
  __host__ __device__ std::int64_t place_of(std::int64_t i) const {
    return i / inner / classes * inner.value() + i % inner;
  }
  std::int64_t channels;
  Divisor inner, classes;
};

// Returns whether the channels of a place follow each other closely enough to be read together.
bool are_rows(const SoftmaxDesc& desc) { return desc.inner < 8; }

void forward_rows(Context& ctx, const SoftmaxDesc& desc, const float* in, float* out) {
  const Columns columns(desc);
  const std::int64_t places = desc.outer * desc.inner;
  float *const most = ctx.scratch(2 * places).data(), *const part = most + places;
  reduce<Most>(
      ctx, "softmax's maximum", places, desc.channels,
      [=] __host__ __device__(std::int64_t place, std::int64_t c) {
        return Most{true, in[columns.at(place, c)]};
      },
      Larger(),
      [=] __host__ __device__(std::int64_t place, Most found) { most[place] = found.value; });
  reduce<float>(
      ctx, "softmax's sum", places, desc.channels,
      [=] __host__ __device__(std::int64_t place, std::int64_t c) {
        return std::exp(in[columns.at(place, c)] - most[place]);
      },
      Add(), [=] __host__ __device__(std::int64_t place, float sum) { part[place] = 1 / sum; });
  each(ctx, "softmax", places * desc.channels, [=] __host__ __device__(std::int64_t i) {
    const std::int64_t place = columns.place_of(i);
    out[i] = std::exp(in[i] - most[place]) * part[place];
  });
}

// One thread a place: neighbours read neighbours.
void forward_planes(Context& ctx, const SoftmaxDesc& desc, const float* in, float* out) {
  const Columns columns(desc);
  each(ctx, "softmax", desc.outer * desc.inner, [=] __host__ __device__(std::int64_t place) {
    const std::int64_t first = columns.at(place, 0), step = columns.inner.value();
    float most = in[first], sum = 0;
    for (std::int64_t c = 1; c < columns.channels; ++c) {
      const float x = in[first + c * step];
      most = most < x ? x : most;
    }
    for (std::int64_t c = 0; c < columns.channels; ++c)
      sum += std::exp(in[first + c * step] - most);
    const float part = 1 / sum;
    for (std::int64_t i = first, end = first + columns.channels * step; i < end; i += step)
      out[i] = std::exp(in[i] - most) * part;
  });
}

void backward_rows(Context& ctx, const SoftmaxDesc& desc, const float* y, const float* dy,
                   float* dx) {
  const Columns columns(desc);
  const std::int64_t places = desc.outer * desc.inner;
  float* const dot = ctx.scratch(places).data();
  reduce<float>(
      ctx, "softmax's product", places, desc.channels,
      [=] __host__ __device__(std::int64_t place, std::int64_t c) {
        const std::int64_t i = columns.at(place, c);
        return y[i] * dy[i];
      },
      Add(), [=] __host__ __device__(std::int64_t place, float sum) { dot[place] = sum; });
  each(ctx, "softmax's gradient", places * desc.channels, [=] __host__ __device__(std::int64_t i) {
    dx[i] = y[i] * (dy[i] - dot[columns.place_of(i)]);
  });
}

void backward_planes(Context& ctx, const SoftmaxDesc& desc, const float* y, const float* dy,
                     float* dx) {
  const Columns columns(desc);
  each(ctx, "softmax's gradient", desc.outer * desc.inner,
       [=] __host__ __device__(std::int64_t place) {
         const std::int64_t first = columns.at(place, 0), step = columns.inner.value(),
                            end = first + columns.channels * step;
         float dot = 0;
         for (std::int64_t i = first; i < end; i += step) dot += y[i] * dy[i];
         for (std::int64_t i = first; i < end; i += step) dx[i] = y[i] * (dy[i] - dot);
       });
}

class Softmax final : public SoftmaxKernel {
 public:
  explicit Softmax(const SoftmaxDesc& desc) : desc_(desc) {}
  KernelNeeds needs(const Context&) const override {
    return {.workspace = are_rows(desc_) ? 2 * desc_.outer * desc_.inner : 0};
  }
  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    const float* const in = read(ctx, x);
    (are_rows(desc_) ? forward_rows : forward_planes)(ctx, desc_, in, write(ctx, y));
  }
  void backward(Context& ctx, const Tensor& y, const Tensor& dy, Tensor& dx) override {
    const float *const out = read(ctx, y), *const slope = read(ctx, dy);
    (are_rows(desc_) ? backward_rows : backward_planes)(ctx, desc_, out, slope, write(ctx, dx));
  }

 private:
  SoftmaxDesc desc_;
};

}  // namespace

const SoftmaxImpl kSoftmax{"cuda", [](const SoftmaxDesc&, const Context&) { return kYes; },
                           [](const SoftmaxDesc& desc, Context&) -> std::unique_ptr<SoftmaxKernel> {
                             return std::make_unique<Softmax>(desc);
                           }};

}  // namespace shoal::ops::cuda
