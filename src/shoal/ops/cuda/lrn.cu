// Our own local response normalization on a CUDA device.
#include <algorithm>
#include <cmath>
#include <memory>

#include "shoal/ops/cuda/channels.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/normalize.h"

namespace shoal::ops::cuda {
namespace {

__host__ __device__ inline float power(float s, float beta) {
  if (beta == 0.75f) {
    const float r = 1 / std::sqrt(s);
    return r * std::sqrt(r);
  }
  if (beta == 0.5f) return 1 / std::sqrt(s);
  if (beta == 1) return 1 / s;
  return std::pow(s, -beta);
}

// The numbers around one: along channels, or in its plane. Either channels or places are far apart.
class Around {
 public:
  Around(const LrnDesc& desc, bool channels_last)
      : across_(desc.region == LrnDesc::Region::kAcross),
        reach_(static_cast<int>(desc.size / 2)),
        channels_(static_cast<int>(desc.channels)),
        height_(static_cast<int>(desc.height)),
        width_(static_cast<int>(desc.width)),
        channel_(channels_last ? 1 : desc.height * desc.width),
        place_(channels_last ? desc.channels : 1),
        by_channels_(desc.channels),
        by_height_(desc.height),
        by_width_(desc.width) {}

  // The sum of the numbers of v around number i, or of their squares. Bounds are counted from 0: of
  // bounds counted from i, ptxas 13.0 loses the sign of -reach where it takes a maximum of three.
  template <bool kSquares, class N>
  __host__ __device__ float sum(const N* v, std::int64_t i) const {
    if (across_) {
      const int c = static_cast<int>(i / channel_ % by_channels_);
      return sum_of<kSquares>(v + i - c * channel_.value(), begin(c), end(c, channels_),
                              channel_.value());
    }
    const std::int64_t place = i / place_, row = place_.value() * width_;
    const int h = static_cast<int>(place / by_width_ % by_height_),
              w = static_cast<int>(place % by_width_);
    const N* const plane = v + i - h * row - w * place_.value();
    float total = 0;
    for (int y = begin(h); y < end(h, height_); ++y)
      total += sum_of<kSquares>(plane + y * row, begin(w), end(w, width_), place_.value());
    return total;
  }

 private:
  __host__ __device__ int begin(int at) const { return std::max(0, at - reach_); }
  __host__ __device__ int end(int at, int size) const { return std::min(size, at + reach_ + 1); }
  template <bool kSquares, class N>
  __host__ __device__ static float sum_of(const N* v, int begin, int end, std::int64_t step) {
    float total = 0;
    for (int k = begin; k < end; ++k) {
      const float one = value(v[k * step]);
      total += kSquares ? one * one : one;
    }
    return total;
  }

  bool across_;
  int reach_, channels_, height_, width_;
  Divisor channel_, place_;  // how far neighbours are apart
  Divisor by_channels_, by_height_, by_width_;
};

// A description as kernels take it.
struct Lrn {
  Lrn(const LrnDesc& desc, bool channels_last)
      : around(desc, channels_last), k(desc.k), beta(desc.beta) {
    const bool across = desc.region == LrnDesc::Region::kAcross;
    if (!across) k = 1;
    ratio = desc.alpha / static_cast<float>(across ? desc.size : desc.size * desc.size);
  }
  template <class N>
  __host__ __device__ float spread(const N* x, std::int64_t i) const {
    return k + ratio * around.sum<true>(x, i);
  }
  Around around;
  float k, beta, ratio;
};

template <class N>
void normalize(Context& ctx, const Lrn& lrn, std::int64_t count, const N* x, N* y) {
  each(ctx, "LRN", count, [=] __host__ __device__(std::int64_t i) {
    y[i] = number<N>(value(x[i]) * power(lrn.spread(x, i), lrn.beta));
  });
}

// Computes dx_i = dy_i s_i^-beta - 2 ratio beta x_i (sum over the j around i of dy_j x_j s_j^(-beta
// - 1)). `direct` and `indirect` have room for the first term, and for the terms of that sum.
template <class N>
void differentiate(Context& ctx, const Lrn& lrn, std::int64_t count, const N* x, const N* dy,
                   float* direct, float* indirect, N* dx) {
  each(ctx, "LRN's gradient", count, [=] __host__ __device__(std::int64_t i) {
    const float s = lrn.spread(x, i), first = value(dy[i]) * power(s, lrn.beta);
    direct[i] = first;
    indirect[i] = first * value(x[i]) / s;
  });
  const float factor = 2 * lrn.ratio * lrn.beta;
  each(ctx, "LRN's gradient", count, [=] __host__ __device__(std::int64_t i) {
    dx[i] = number<N>(direct[i] - factor * value(x[i]) * lrn.around.sum<false>(indirect, i));
  });
}

class LrnOf final : public LrnKernel {
 public:
  explicit LrnOf(const LrnDesc& desc)
      : plain_(desc, false),
        last_(desc, true),
        dims_{desc.images, desc.channels, desc.height * desc.width},
        count_(desc.images * desc.channels * desc.height * desc.width) {}
  KernelNeeds needs(const Context& ctx) const override {
    return {.workspace = (takes_short(ctx.precision()) ? 2 : 1) * count_};
  }
  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    const Order order(dims_, x.layout());
    const std::byte* const in = x.read(ctx, order.layout);
    std::byte* const out = y.write(ctx, order.layout);
    with_type(order.type, [&](auto one) {
      using N = decltype(one);
      normalize(ctx, lrn(order), count_, reinterpret_cast<const N*>(in), reinterpret_cast<N*>(out));
    });
  }
  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) override {
    const Order order(dims_, common_layout(x, dy));
    const std::byte *const in = x.read(ctx, order.layout), *const slope =
                                                               dy.read(ctx, order.layout);
    // A gradient of float32 has room for its first term itself.
    const bool is_short = order.type != ElementType::kFloat32;
    float* const terms = ctx.scratch((is_short ? 2 : 1) * count_).data();
    std::byte* const out = dx.write(ctx, order.layout);
    float* const direct = is_short ? terms + count_ : reinterpret_cast<float*>(out);
    with_type(order.type, [&](auto one) {
      using N = decltype(one);
      differentiate(ctx, lrn(order), count_, reinterpret_cast<const N*>(in),
                    reinterpret_cast<const N*>(slope), direct, terms, reinterpret_cast<N*>(out));
    });
  }

 private:
  const Lrn& lrn(const Order& order) const {
    return as_channels_last(order.layout) ? last_ : plain_;
  }

  Lrn plain_, last_;  // for both orders
  BroadcastDims dims_;
  std::int64_t count_;
};

}  // namespace

const LrnImpl kLrn{"cuda", [](const LrnDesc&, const Context&) { return kYes; },
                   [](const LrnDesc& desc, Context&) -> std::unique_ptr<LrnKernel> {
                     return std::make_unique<LrnOf>(desc);
                   }};

}  // namespace shoal::ops::cuda
