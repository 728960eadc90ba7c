// Sums and loops over tensors that are seen as outer x dim x inner numbers, by dim.
#pragma once

#include "shoal/ops/broadcast.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {

// Which d an element belongs to.
struct ChannelOf {
  explicit ChannelOf(const BroadcastDims& dims) : inner(dims.inner), dim(dims.dim) {}
  __host__ __device__ std::int64_t operator()(std::int64_t i) const { return i / inner % dim; }
  Divisor inner, dim;
};

// put(d, the sum of term(i, d) over the elements i of d) for each d. Takes the context's scratch.
template <class T, class Term, class Put>
void sum_channels(Context& ctx, const char* name, const BroadcastDims& dims, Term term, Put put) {
  // Neighbours belong to different d: one thread each, if these are enough.
  constexpr std::int64_t kMany = 1024;
  const std::int64_t outer = dims.outer, dim = dims.dim, columns = dims.outer * dims.inner;
  if (dims.inner == 1 && (dim >= kMany || dim >= outer)) {
    each(ctx, name, dim, [=] __host__ __device__(std::int64_t d) {
      T sum{};
      for (std::int64_t o = 0; o < outer; ++o) sum = sum + term(o * dim + d, d);
      put(d, sum);
    });
    return;
  }
  const Divisor inner(dims.inner);
  const std::int64_t step =
      (dim - 1) * dims.inner;  // from the end of an outer's stretch to the next
  sum_rows<T>(
      ctx, name, dim, columns,
      [=] __host__ __device__(std::int64_t d, std::int64_t c) {
        const std::int64_t o = c / inner;
        return term(c + o * step + d * inner.value(), d);
      },
      put);
}

}  // namespace shoal::ops::cuda
