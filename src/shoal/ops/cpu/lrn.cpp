#include <algorithm>
#include <cmath>
#include <cstdint>

#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/lrn_blocked.h"
#include "shoal/ops/cpu/lrn_power.h"
#include "shoal/ops/cpu/parallel.h"

namespace shoal::ops::cpu {
namespace {

// Across channels. Works through an image in strips of a few places, all channels of each, so that
// what neighbouring channels share is still in the cache.
class AcrossChannels final : public LrnKernel {
 public:
  explicit AcrossChannels(const LrnDesc& desc)
      : desc_(desc),
        blocked_(desc),
        places_(desc.height * desc.width),
        ratio_(desc.alpha / static_cast<float>(desc.size)) {}

  KernelNeeds needs(const Context& ctx) const override {
    return {.workspace = ctx.threads() * std::max(desc_.channels * kStrip, blocked_.room())};
  }

  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    if (blocked_.serves(x)) return blocked_.forward(ctx, x, y);
    const float* in = x.in();
    float* out = y.out();
    with_power(desc_.beta, [&](auto power) {
      each_strip(ctx, [&](int, std::int64_t first, std::int64_t width) {
        for (std::int64_t c = 0; c < desc_.channels; ++c) {
          const float* from = in + first + c * places_;
          float* to = out + first + c * places_;
          float s[kStrip];
          spread(c, in + first, width, s);
          for (std::int64_t i = 0; i < width; ++i) to[i] = from[i] * power(s[i]);
        }
      });
    });
  }

  // Computes dx_i = dy_i s_i^-beta - 2 alpha beta / size x_i (sum over the channels j around i of
  // dy_j x_j s_j^(-beta - 1)).
  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) override {
    if (blocked_.serves(x)) return blocked_.backward(ctx, x, dy, dx);
    const float *in = x.in(), *slope = dy.in();
    float *out = dx.out(), *scratch = ctx.scratch(ctx.threads() * desc_.channels * kStrip).data();
    with_power(desc_.beta, [&](auto power) {
      each_strip(ctx, [&](int thread, std::int64_t first, std::int64_t width) {
        float* q = scratch + thread * desc_.channels * kStrip;
        for (std::int64_t c = 0; c < desc_.channels; ++c) {
          const std::int64_t at = first + c * places_;
          float s[kStrip];
          spread(c, in + first, width, s);
          for (std::int64_t i = 0; i < width; ++i) {
            const float direct = slope[at + i] * power(s[i]);
            out[at + i] = direct;
            q[c * kStrip + i] = direct * in[at + i] / s[i];
          }
        }
        for (std::int64_t c = 0; c < desc_.channels; ++c)
          add_indirect(c, q, in + first + c * places_, width, out + first + c * places_);
      });
    });
  }

 private:
  // Calls f(thread, the strip's first number in x, its width) for each strip.
  template <class F>
  void each_strip(Context& ctx, F f) const {
    for_strips(ctx.threads(), desc_.images, desc_.channels, places_, f);
  }

  std::int64_t low(std::int64_t c) const { return std::max<std::int64_t>(0, c - desc_.size / 2); }
  std::int64_t high(std::int64_t c) const {
    return std::min(desc_.channels, c + desc_.size / 2 + 1);
  }

  // Computes s of channel c: k + alpha / size * (sum of squares).
  void spread(std::int64_t c, const float* strip, std::int64_t width, float* s) const {
    std::fill(s, s + width, 0.0f);
    for (std::int64_t near = low(c); near < high(c); ++near) {
      const float* x = strip + near * places_;
      for (std::int64_t i = 0; i < width; ++i) s[i] += x[i] * x[i];
    }
    for (std::int64_t i = 0; i < width; ++i) s[i] = desc_.k + ratio_ * s[i];
  }

  void add_indirect(std::int64_t c, const float* q, const float* x, std::int64_t width,
                    float* dx) const {
    float total[kStrip] = {};
    for (std::int64_t near = low(c); near < high(c); ++near)
      for (std::int64_t i = 0; i < width; ++i) total[i] += q[near * kStrip + i];
    const float factor = 2 * ratio_ * desc_.beta;
    for (std::int64_t i = 0; i < width; ++i) dx[i] -= factor * x[i] * total[i];
  }

  LrnDesc desc_;
  BlockedLrn blocked_;
  std::int64_t places_;
  float ratio_;
};

// Within each plane.
class WithinChannel final : public LrnKernel {
 public:
  explicit WithinChannel(const LrnDesc& desc)
      : desc_(desc),
        blocked_(desc),
        places_(desc.height * desc.width),
        ratio_(desc.alpha / static_cast<float>(desc.size * desc.size)) {}

  KernelNeeds needs(const Context& ctx) const override {
    return {.workspace = ctx.threads() * std::max(3 * places_, blocked_.room())};
  }

  void forward(Context& ctx, const Tensor& x, Tensor& y) override {
    if (blocked_.serves(x)) return blocked_.forward(ctx, x, y);
    const float* in = x.in();
    float* out = y.out();
    with_power(desc_.beta, [&](auto power) {
      each_plane(ctx, [&](std::int64_t first, float* room) {
        const float* s = spread(in + first, room);
        for (std::int64_t i = 0; i < places_; ++i) out[first + i] = in[first + i] * power(s[i]);
      });
    });
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) override {
    if (blocked_.serves(x)) return blocked_.backward(ctx, x, dy, dx);
    const float *in = x.in(), *slope = dy.in();
    float* out = dx.out();
    const float factor = 2 * ratio_ * desc_.beta;
    with_power(desc_.beta, [&](auto power) {
      each_plane(ctx, [&](std::int64_t first, float* room) {
        const float* s = spread(in + first, room);
        for (std::int64_t i = 0; i < places_; ++i) {
          const float direct = slope[first + i] * power(s[i]);
          out[first + i] = direct;
          room[i] = direct * in[first + i] / s[i];
        }
        box(room, room + places_, room + 2 * places_);
        for (std::int64_t i = 0; i < places_; ++i)
          out[first + i] -= factor * in[first + i] * room[2 * places_ + i];
      });
    });
  }

 private:
  // Calls f(the plane's first number, room for three planes) for each plane.
  template <class F>
  void each_plane(Context& ctx, F f) const {
    float* scratch = ctx.scratch(ctx.threads() * 3 * places_).data();
    parallel_for(ctx.threads(), desc_.images * desc_.channels, grain_of(8 * places_),
                 [&](int thread, std::int64_t begin, std::int64_t end) {
                   for (std::int64_t plane = begin; plane < end; ++plane)
                     f(plane * places_, scratch + thread * 3 * places_);
                 });
  }

  // Returns s of one plane, in the third part of the room.
  const float* spread(const float* x, float* room) const {
    float* s = room + 2 * places_;
    for (std::int64_t i = 0; i < places_; ++i) room[i] = x[i] * x[i];
    box(room, room + places_, s);
    for (std::int64_t i = 0; i < places_; ++i) s[i] = 1 + ratio_ * s[i];
    return s;
  }

  // Sums over the window around each place, first along rows into `rows`, then along columns.
  void box(const float* in, float* rows, float* out) const {
    const std::int64_t reach = desc_.size / 2, height = desc_.height, width = desc_.width;
    std::fill(rows, rows + places_, 0.0f);
    for (std::int64_t h = 0; h < height; ++h)
      for (std::int64_t shift = -reach; shift <= reach; ++shift) {
        const std::int64_t begin = std::max<std::int64_t>(0, -shift),
                           end = std::min(width, width - shift);
        for (std::int64_t w = begin; w < end; ++w) rows[h * width + w] += in[h * width + w + shift];
      }
    std::fill(out, out + places_, 0.0f);
    for (std::int64_t h = 0; h < height; ++h)
      for (std::int64_t near = std::max<std::int64_t>(0, h - reach);
           near < std::min(height, h + reach + 1); ++near)
        for (std::int64_t w = 0; w < width; ++w) out[h * width + w] += rows[near * width + w];
  }

  LrnDesc desc_;
  BlockedLrnWithin blocked_;
  std::int64_t places_;
  float ratio_;
};

std::unique_ptr<LrnKernel> make(const LrnDesc& desc, Context&) {
  if (desc.region == LrnDesc::Region::kAcross) return std::make_unique<AcrossChannels>(desc);
  return std::make_unique<WithinChannel>(desc);
}

}  // namespace

const LrnImpl kLrn{"plain", serves_all<LrnDesc>, make};

}  // namespace shoal::ops::cpu
