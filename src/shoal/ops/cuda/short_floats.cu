#include "shoal/ops/cuda/short_floats.h"

#include "shoal/ops/cuda/elementwise.h"

namespace shoal::ops::cuda {
namespace {

// A thread converts one pack of numbers of 16 bits.
template <class N>
constexpr int kLanes = Pack<N>::kSize;

// Calls work(first number, how many, whether they are all a pack's and aligned) for each pack.
template <class N, class Work>
void each_pack(Context& ctx, const char* name, std::int64_t count, bool aligned, Work work) {
  each(ctx, name, (count + kLanes<N> - 1) / kLanes<N>, [=] __host__ __device__(std::int64_t pack) {
    const std::int64_t i = pack * kLanes<N>, left = count - i;
    const int some = left < kLanes<N> ? static_cast<int>(left) : kLanes<N>;
    work(i, some, aligned && some == kLanes<N>);
  });
}

template <class N>
void shorten_to(Context& ctx, std::int64_t count, const float* from, N* to) {
  each_pack<N>(ctx, "shorten", count, is_aligned(from) && is_aligned(to),
               [=] __host__ __device__(std::int64_t i, int some, bool whole) {
                 const auto floats = load<float, kLanes<N>>(from + i, some, whole);
                 Pack<N> shorts{};
                 for (int k = 0; k < kLanes<N>; ++k) shorts.at[k] = number<N>(floats.at[k]);
                 store(shorts, to + i, some, whole);
               });
}

template <class N>
void widen_from(Context& ctx, std::int64_t count, const N* from, float* to, bool adds) {
  each_pack<N>(ctx, "widen", count, is_aligned(from) && is_aligned(to),
               [=] __host__ __device__(std::int64_t i, int some, bool whole) {
                 const Pack<N> shorts = load(from + i, some, whole);
                 Pack<float, kLanes<N>> floats{};
                 if (adds) floats = load<float, kLanes<N>>(to + i, some, whole);
                 for (int k = 0; k < kLanes<N>; ++k) floats.at[k] += value(shorts.at[k]);
                 store(floats, to + i, some, whole);
               });
}

}  // namespace

void shorten(Context& ctx, ElementType type, std::int64_t count, const float* from, void* to) {
  with_type(type, [&](auto one) { shorten_to(ctx, count, from, static_cast<decltype(one)*>(to)); });
}

void widen(Context& ctx, ElementType type, std::int64_t count, const void* from, float* to,
           bool adds) {
  with_type(type, [&](auto one) {
    widen_from(ctx, count, static_cast<const decltype(one)*>(from), to, adds);
  });
}

}  // namespace shoal::ops::cuda
