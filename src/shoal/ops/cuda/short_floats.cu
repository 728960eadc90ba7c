#include "shoal/ops/cuda/short_floats.h"

#include "shoal/ops/cuda/elementwise.h"

namespace shoal::ops::cuda {
namespace {

template <class N>
void shorten_to(Context& ctx, std::int64_t count, const float* from, N* to) {
  each(ctx, "shorten", count,
       [=] __host__ __device__(std::int64_t i) { to[i] = number<N>(from[i]); });
}

template <class N>
void widen_from(Context& ctx, std::int64_t count, const N* from, float* to, bool adds) {
  each(ctx, "widen", count,
       [=] __host__ __device__(std::int64_t i) { to[i] = (adds ? to[i] : 0) + value(from[i]); });
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
