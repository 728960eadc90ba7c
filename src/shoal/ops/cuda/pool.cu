// Our own pooling on a CUDA device. Backward gathers: each input adds what the windows over it
// bring, in their order.
#include <limits>
#include <memory>

#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementwise.h"
#include "shoal/ops/cuda/impls.h"
#include "shoal/ops/cuda/windows.h"
#include "shoal/ops/weighted_window.h"
#include "shoal/ops/window.h"

namespace shoal::ops::cuda {
namespace {

// The kernels below take numbers of type N, kLanes planes at a time, which lie side by side.
template <class T, int kLanes>
__host__ __device__ Pack<T, kLanes> load_lanes(const T* from) {
  return *reinterpret_cast<const Pack<T, kLanes>*>(from);
}
template <class N, int kLanes>
__host__ __device__ void store_lanes(const float (&numbers)[kLanes], N* to) {
  Pack<N, kLanes> pack;
  for (int k = 0; k < kLanes; ++k) pack.at[k] = number<N>(numbers[k]);
  *reinterpret_cast<Pack<N, kLanes>*>(to) = pack;
}

template <class W, int kLanes>
__host__ __device__ void store_winners(const int (&winner)[kLanes], W* to) {
  Pack<W, kLanes> pack;
  for (int k = 0; k < kLanes; ++k) pack.at[k] = static_cast<W>(winner[k]);
  *reinterpret_cast<Pack<W, kLanes>*>(to) = pack;
}

// A winner is the tap of its window, or W(-1) if nothing won; W is std::uint8_t where taps fit.
// Each of y, winners and index may be null; index tells places h * in + w, or -1.
template <int kLanes, class N, class W>
void largest(Context& ctx, const Windows& windows, const N* x, N* y, W* winners, float* index) {
  each(ctx, "maximum of windows", windows.outputs / kLanes,
       [=] __host__ __device__(std::int64_t pack) {
         const std::int64_t i = pack * kLanes;
         const Windows::Place o = windows.output(i);
         const N* const plane = x + o.inputs;
         const int h_begin = windows.height.begin(o.h), h_end = windows.height.end(o.h);
         const int w_begin = windows.width.begin(o.w), w_end = windows.width.end(o.w);
         float best[kLanes];
         int winner[kLanes];
         for (int k = 0; k < kLanes; ++k) {
           best[k] = -std::numeric_limits<float>::infinity();
           winner[k] = -1;
         }
         for (int h = h_begin; h < h_end; ++h)
           for (int w = w_begin; w < w_end; ++w) {
             const auto values =
                 load_lanes<N, kLanes>(plane + (h * windows.width.in + w) * windows.step());
             const int tap = windows.tap(o.h, o.w, h, w);
             for (int k = 0; k < kLanes; ++k)
               if (const float one = value(values.at[k]); one > best[k]) {
                 best[k] = one;
                 winner[k] = tap;
               }
           }
         if (winners != nullptr) store_winners(winner, winners + i);
         if (index != nullptr)
           for (int k = 0; k < kLanes; ++k)
             index[i + k] =
                 static_cast<float>(winner[k] < 0 ? -1 : windows.seen(o.h, o.w, winner[k]));
         const bool sees = h_begin < h_end && w_begin < w_end;
         for (int k = 0; k < kLanes; ++k)
           if (!sees) best[k] = 0;
         if (y != nullptr) store_lanes(best, y + i);
       });
}

template <int kLanes, class N, class W>
void largest_backward(Context& ctx, const Windows& windows, const W* winners, const N* dy, N* dx) {
  each(ctx, "gradient of maxima", windows.inputs / kLanes,
       [=] __host__ __device__(std::int64_t pack) {
         const std::int64_t i = pack * kLanes;
         const Windows::Place at = windows.input(i);
         const int h_last = windows.height.last(at.h), w_last = windows.width.last(at.w);
         float sum[kLanes] = {};
         for (int h = windows.height.first(at.h); h < h_last; ++h)
           for (int w = windows.width.first(at.w); w < w_last; ++w) {
             const std::int64_t o = at.outputs + (h * windows.width.out + w) * windows.step();
             const auto slopes = load_lanes<N, kLanes>(dy + o);
             const auto won = load_lanes<W, kLanes>(winners + o);
             const int tap = windows.tap(h, w, at.h, at.w);
             for (int k = 0; k < kLanes; ++k)
               if (won.at[k] == tap) sum[k] += value(slopes.at[k]);
           }
         store_lanes(sum, dx + i);
       });
}

// Sums along columns first, then along rows.
template <int kLanes, class N>
void average(Context& ctx, const Windows& windows, const N* x, N* y) {
  each(ctx, "average of windows", windows.outputs / kLanes,
       [=] __host__ __device__(std::int64_t pack) {
         const std::int64_t i = pack * kLanes;
         const Windows::Place o = windows.output(i);
         const N* const plane = x + o.inputs;
         const int h_begin = windows.height.begin(o.h), h_end = windows.height.end(o.h);
         const int w_begin = windows.width.begin(o.w), w_end = windows.width.end(o.w);
         float sum[kLanes] = {};
         for (int w = w_begin; w < w_end; ++w) {
           float column[kLanes] = {};
           for (int h = h_begin; h < h_end; ++h) {
             const auto values =
                 load_lanes<N, kLanes>(plane + (h * windows.width.in + w) * windows.step());
             for (int k = 0; k < kLanes; ++k) column[k] += value(values.at[k]);
           }
           for (int k = 0; k < kLanes; ++k) sum[k] += column[k];
         }
         const float area = windows.height.covered(o.h) * windows.width.covered(o.w);
         for (int k = 0; k < kLanes; ++k) sum[k] /= area;
         store_lanes(sum, y + i);
       });
}

template <int kLanes, class N>
void average_backward(Context& ctx, const Windows& windows, const N* dy, N* dx) {
  each(ctx, "gradient of averages", windows.inputs / kLanes,
       [=] __host__ __device__(std::int64_t pack) {
         const std::int64_t i = pack * kLanes;
         const Windows::Place at = windows.input(i);
         const int h_last = windows.height.last(at.h), w_last = windows.width.last(at.w);
         float sum[kLanes] = {};
         for (int h = windows.height.first(at.h); h < h_last; ++h) {
           float row[kLanes] = {};
           for (int w = windows.width.first(at.w); w < w_last; ++w) {
             const auto slopes = load_lanes<N, kLanes>(
                 dy + at.outputs + (h * windows.width.out + w) * windows.step());
             const float area = windows.height.covered(h) * windows.width.covered(w);
             for (int k = 0; k < kLanes; ++k) row[k] += value(slopes.at[k]) / area;
           }
           for (int k = 0; k < kLanes; ++k) sum[k] += row[k];
         }
         store_lanes(sum, dx + i);
       });
}

__host__ __device__ Window window_at(const Windows& windows, const Windows::Place& o) {
  return {windows.height.begin(o.h), windows.height.end(o.h), windows.width.begin(o.w),
          windows.width.end(o.w)};
}

// Stochastic pooling draws by the plain number of an output, so x and y are in plain order.
template <class W>
void sampled(Context& ctx, const Windows& windows, const Random::State& coins, const float* x,
             float* y, W* winners) {
  each(ctx, "draws from windows", windows.outputs, [=] __host__ __device__(std::int64_t i) {
    const Windows::Place o = windows.output(i);
    const float* const plane = x + o.inputs;
    const int place = draw_place(window_at(windows, o), windows.width.in,
                                 to_unit(word_at(coins, static_cast<std::uint64_t>(i))),
                                 [plane](int place) { return plane[place]; });
    y[i] = place < 0 ? 0.0f : plane[place];
    const int columns = windows.width.in;
    winners[i] =
        static_cast<W>(place < 0 ? -1 : windows.tap(o.h, o.w, place / columns, place % columns));
  });
}

void expected(Context& ctx, const Windows& windows, const float* x, float* y) {
  each(ctx, "weighted means of windows", windows.outputs, [=] __host__ __device__(std::int64_t i) {
    const Windows::Place o = windows.output(i);
    const float* const plane = x + o.inputs;
    y[i] = weighted_mean(window_at(windows, o), windows.width.in, [plane](int place) {
             return plane[place];
           }).mean;
  });
}

void expected_backward(Context& ctx, const Windows& windows, const float* x, const float* dy,
                       float* dx) {
  each(ctx, "gradient of weighted means", windows.inputs, [=] __host__ __device__(std::int64_t i) {
    const Windows::Place at = windows.input(i);
    const float* const plane = x + at.inputs;
    const int h_last = windows.height.last(at.h), w_last = windows.width.last(at.w);
    float sum = 0;
    for (int h = windows.height.first(at.h); h < h_last; ++h)
      for (int w = windows.width.first(at.w); w < w_last; ++w) {
        const WeightedMean mean = weighted_mean(window_at(windows, {h, w, 0, 0}), windows.width.in,
                                                [plane](int place) { return plane[place]; });
        sum += dy[at.outputs + h * windows.width.out + w] * mean.slope(x[i]);
      }
    dx[i] = sum;
  });
}

class Pool final : public PoolKernel {
 public:
  using Method = PoolDesc::Method;
  Pool(const PoolDesc& desc, const Device& device)
      : desc_(desc),
        method_(desc.method),
        in_(desc.height.in * desc.width.in),
        out_(desc.height.out * desc.width.out) {
    if (method_ == Method::kSampled || (method_ == Method::kMax && desc.keeps_winners))
      winners_ = device.allocate(static_cast<std::size_t>(winner_bytes()));
  }

  KernelNeeds needs(const Context&) const override {
    return {.workspace = method_ == Method::kMax && winners_ == nullptr ? winner_floats() : 0};
  }

  void forward(Context& ctx, const Tensor& x, Tensor& y, Tensor* index,
               const Random::State& coins) override {
    CHECK(index == nullptr || method_ == Method::kMax)
        << "only the largest numbers have places to tell";
    const Windows plain(desc_, 1);
    if (method_ == Method::kExpected || method_ == Method::kSampled) {
      const float* const in = read(ctx, x);
      float* const out = write(ctx, y);
      if (method_ == Method::kExpected) return expected(ctx, plain, in, out);
      return with_winners(kept(),
                          [&](auto* winners) { sampled(ctx, plain, coins, in, out, winners); });
    }
    together_ = planes_together(x.layout());
    type_ = type_of(x.layout());
    const std::byte* const in = x.read(ctx, layout(in_));
    std::byte* const out = y.write(ctx, layout(out_));
    float* const places =
        index ? write(ctx, *index, together_ == 1 ? nullptr : channels_last(together_, out_))
              : nullptr;
    const Windows windows(desc_, together_);
    with_lanes(is_aligned(in) && is_aligned(out), [&]<int kLanes>(auto one) {
      using N = decltype(one);
      const auto* const from = reinterpret_cast<const N*>(in);
      auto* const to = reinterpret_cast<N*>(out);
      if (method_ == Method::kMax)
        with_winners(kept(), [&](auto* winners) {
          largest<kLanes>(ctx, windows, from, to, winners, places);
        });
      else
        average<kLanes>(ctx, windows, from, to);
    });
  }

  void backward(Context& ctx, const Tensor& x, const Tensor& dy, Tensor& dx) override {
    const Windows windows(desc_, together_);
    if (method_ == Method::kExpected) {
      const float *const slope = read(ctx, dy), *const in = read(ctx, x);
      return expected_backward(ctx, windows, in, slope, write(ctx, dx));
    }
    const std::byte* const slope = dy.read(ctx, layout(out_));
    std::byte* const winners = method_ == Method::kAverage ? nullptr : winners_of(ctx, x);
    std::byte* const out = dx.write(ctx, layout(in_));
    with_lanes(is_aligned(slope) && is_aligned(out), [&]<int kLanes>(auto one) {
      using N = decltype(one);
      const auto* const from = reinterpret_cast<const N*>(slope);
      auto* const to = reinterpret_cast<N*>(out);
      if (method_ == Method::kAverage)
        average_backward<kLanes>(ctx, windows, from, to);
      else
        with_winners(winners, [&](const auto* won) {
          largest_backward<kLanes>(ctx, windows, won, from, to);
        });
    });
  }

 private:
  // Returns how many planes of x lie together in this layout; 1: x is to be read in plain order.
  std::int64_t planes_together(const LayoutPtr& layout) const {
    const DeviceLayout* const last = as_channels_last(layout);
    const bool fits = last != nullptr && last->inner == in_ && desc_.planes % last->channels == 0;
    return fits ? last->channels : 1;
  }
  // Returns the layout of planes of `inner` numbers, in the order and the type of the last forward.
  LayoutPtr layout(std::int64_t inner) const { return channels_last(together_, inner, type_); }
  // Calls work<lanes>(N()): N is the last forward's type, lanes as many planes as fill 16 bytes, or
  // one.
  template <class Work>
  void with_lanes(bool aligned, const Work& work) const {
    with_type(type_, [&](auto one) {
      constexpr int kLanes = Pack<decltype(one)>::kSize;
      if (aligned && together_ % kLanes == 0)
        work.template operator()<kLanes>(one);
      else
        work.template operator()<1>(one);
    });
  }
  // Returns whether every tap is below the byte that stands for none.
  bool taps_fit_a_byte() const { return desc_.height.kernel * desc_.width.kernel <= 255; }
  std::int64_t winner_bytes() const { return desc_.planes * out_ * (taps_fit_a_byte() ? 1 : 4); }
  std::int64_t winner_floats() const { return (winner_bytes() + 3) / 4; }
  // Calls work(winners), as numbers of their type.
  template <class Work>
  void with_winners(std::byte* winners, const Work& work) const {
    if (taps_fit_a_byte())
      work(reinterpret_cast<std::uint8_t*>(winners));
    else
      work(reinterpret_cast<std::int32_t*>(winners));
  }
  // Returns the last forward's winners, if the description wants them kept.
  std::byte* kept() const { return winners_ ? winners_->data() : nullptr; }
  // They, or else found again in the scratch.
  std::byte* winners_of(Context& ctx, const Tensor& x) const {
    if (std::byte* const winners = kept()) return winners;
    const std::byte* const in = x.read(ctx, layout(in_));
    auto* const found = reinterpret_cast<std::byte*>(ctx.scratch(winner_floats()).data());
    with_lanes(is_aligned(in), [&]<int kLanes>(auto one) {
      using N = decltype(one);
      with_winners(found, [&](auto* winners) {
        largest<kLanes, N>(ctx, Windows(desc_, together_), reinterpret_cast<const N*>(in), nullptr,
                           winners, nullptr);
      });
    });
    return found;
  }

  PoolDesc desc_;
  Method method_;
  std::int64_t in_, out_;  // numbers of one plane
  std::shared_ptr<Memory> winners_;
  // `together_` planes lay together, of type `type_`, in the last forward pass.
  std::int64_t together_ = 1;  // planes
  ElementType type_ = ElementType::kFloat32;
};

}  // namespace

const PoolImpl kPool{"cuda", [](const PoolDesc&, const Context&) { return kYes; },
                     [](const PoolDesc& desc, Context& ctx) -> std::unique_ptr<PoolKernel> {
                       return std::make_unique<Pool>(desc, ctx.device());
                     }};

}  // namespace shoal::ops::cuda
