// Sums and loops over tensors that are seen as outer x dim x inner numbers, by dim.
#pragma once

#include "shoal/ops/broadcast.h"
#include "shoal/ops/cuda/channels_last.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {

// Which d an element belongs to.
struct ChannelOf {
  explicit ChannelOf(const BroadcastDims& dims) : inner(dims.inner), dim(dims.dim) {}
  __host__ __device__ std::int64_t operator()(std::int64_t i) const { return i / inner % dim; }
  Divisor inner, dim;
};

// In which order a kernel finds outer x dim x inner numbers: the plain one, or with dim last.
struct Order {
  // `layout`: of the numbers now. Plain order if it has not dim last.
  Order(const BroadcastDims& plain, const LayoutPtr& now) : dims(plain) {
    const ChannelsLast* const last = as_channels_last(now);
    if (last == nullptr || last->channels != plain.dim || last->inner != plain.inner) return;
    layout = now;
    dims = {.outer = plain.outer * plain.inner, .dim = plain.dim, .inner = 1};
  }
  LayoutPtr layout;
  BroadcastDims dims;
};

// Where a kernel puts the sums that a caller asked for by SumInto.
struct SumTarget {
  SumTarget(Context& ctx, SumInto into) : add(into.add) {
    if (into.tensor != nullptr) numbers = add ? mut(ctx, *into.tensor) : write(ctx, *into.tensor);
  }
  __host__ __device__ void put(std::int64_t d, double sum) const {
    if (numbers != nullptr) numbers[d] = static_cast<float>(add ? numbers[d] + sum : sum);
  }
  float* numbers = nullptr;
  bool add;
};

// For numbers with dim last: sums of pieces by one thread each, whose neighbours read neighbours,
// and then the sums of these.
template <class T, class Term, class Put>
void sum_columns(Context& ctx, const char* name, std::int64_t outer, std::int64_t dim, Term term,
                 Put put) {
  constexpr std::int64_t kPiece = 16, kPieces = std::int64_t{1} << 18;
  const std::int64_t pieces = std::clamp<std::int64_t>((outer + kPiece - 1) / kPiece, 1,
                                                       std::max<std::int64_t>(1, kPieces / dim));
  const std::int64_t size = (outer + pieces - 1) / pieces;
  T* const partial =
      reinterpret_cast<T*>(ctx.scratch(dim * pieces * std::int64_t{sizeof(T) / 4}).data());
  const Divisor by(dim);
  each(ctx, name, dim * pieces, [=] __host__ __device__(std::int64_t i) {
    const std::int64_t d = i % by, first = i / by * size;
    const std::int64_t last = first + size < outer ? first + size : outer;
    T sum{};
    for (std::int64_t o = first; o < last; ++o) sum = sum + term(o * dim + d, d);
    partial[i] = sum;
  });
  reduce<T>(
      ctx, name, dim, pieces,
      [=] __host__ __device__(std::int64_t d, std::int64_t piece) {
        return partial[piece * dim + d];
      },
      Add(), put);
}

// put(d, the sum of term(i, d) over the elements i of d) for each d. Takes the context's scratch.
template <class T, class Term, class Put>
void sum_channels(Context& ctx, const char* name, const BroadcastDims& dims, Term term, Put put) {
  constexpr std::int64_t kWide = 8;
  if (dims.inner == 1 && dims.dim >= kWide)
    return sum_columns<T>(ctx, name, dims.outer, dims.dim, term, put);
  const Divisor inner(dims.inner);
  // from the end of a channel's stretch to the next
  const std::int64_t gap = (dims.dim - 1) * dims.inner;
  sum_rows<T>(
      ctx, name, dims.dim, dims.outer * dims.inner,
      [=] __host__ __device__(std::int64_t d, std::int64_t c) {
        return term(c + c / inner * gap + d * inner.value(), d);
      },
      put);
}

}  // namespace shoal::ops::cuda
