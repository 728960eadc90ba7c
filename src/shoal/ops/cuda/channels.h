// Sums and loops over tensors that are seen as outer x dim x inner numbers, by dim.
#pragma once

#include "shoal/ops/broadcast.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementwise.h"

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
  Order(const BroadcastDims& plain, const LayoutPtr& now)
      : layout(plain_order(type_of(now))), type(type_of(now)), dims(plain) {
    const DeviceLayout* const last = as_channels_last(now);
    if (last == nullptr || last->channels != plain.dim || last->inner != plain.inner) return;
    layout = now;
    dims = {.outer = plain.outer * plain.inner, .dim = plain.dim, .inner = 1};
  }
  LayoutPtr layout;
  ElementType type;
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

// The numbers that sums are made of: of one tensor, or of two in the same order.
template <class N, int kInputs>
struct Summands {
  const N* of[kInputs];
};
template <class N>
__host__ __device__ auto term_of(const auto& term, std::int64_t d, const N (&v)[1]) {
  return term(d, value(v[0]));
}
template <class N>
__host__ __device__ auto term_of(const auto& term, std::int64_t d, const N (&v)[2]) {
  return term(d, value(v[0]), value(v[1]));
}

// For numbers with dim last: sums of pieces of columns, kLanes columns a thread, whose neighbours
// read neighbours. A functor, since an extended lambda may not be generic.
template <class T, int kLanes, int kInputs, class N, class Term>
struct ColumnSums {
  Summands<N, kInputs> in;
  std::int64_t outer, size;  // rows: all, and of a piece
  Divisor packs;             // of a row
  Term term;
  T* partial;  // (piece, column)
  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t piece = i / packs, d = i % packs * kLanes, dim = packs.value() * kLanes;
    const std::int64_t first = piece * size, last = first + size < outer ? first + size : outer;
    T sums[kLanes] = {};
#ifdef __CUDA_ARCH__  // so that several rows are on their way at once
#pragma unroll 4
#endif
    for (std::int64_t row = first; row < last; ++row) {
      Pack<N, kLanes> packs_of[kInputs];
      for (int k = 0; k < kInputs; ++k)
        packs_of[k] = *reinterpret_cast<const Pack<N, kLanes>*>(in.of[k] + row * dim + d);
      for (int lane = 0; lane < kLanes; ++lane) {
        N v[kInputs];
        for (int k = 0; k < kInputs; ++k) v[k] = packs_of[k].at[lane];
        sums[lane] = sums[lane] + term_of(term, d + lane, v);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) partial[piece * dim + d + lane] = sums[lane];
  }
};

template <class T, int kLanes, int kInputs, class N, class Term, class Put>
void sum_columns(Context& ctx, const char* name, std::int64_t outer, std::int64_t dim, Term term,
                 Put put, Summands<N, kInputs> in) {
  // at least so many rows a piece, and about as many threads as a large GPU has at work
  constexpr std::int64_t kPiece = 16, kAtWork = std::int64_t{1} << (kLanes == 1 ? 18 : 17);
  const std::int64_t pieces = std::clamp<std::int64_t>(
      (outer + kPiece - 1) / kPiece, 1, std::max<std::int64_t>(1, kAtWork * kLanes / dim));
  T* const partial =
      reinterpret_cast<T*>(ctx.scratch(dim * pieces * std::int64_t{sizeof(T) / 4}).data());
  each(ctx, name, dim / kLanes * pieces,
       ColumnSums<T, kLanes, kInputs, N, Term>{in, outer, (outer + pieces - 1) / pieces,
                                               Divisor(dim / kLanes), term, partial});
  reduce<T>(
      ctx, name, dim, pieces,
      [=] __host__ __device__(std::int64_t d, std::int64_t piece) {
        return partial[piece * dim + d];
      },
      Add(), put);
}

template <class T, int kInputs, class N, class Term, class Put>
void sum_channels_of(Context& ctx, const char* name, const BroadcastDims& dims, Term term, Put put,
                     Summands<N, kInputs> in) {
  constexpr int kLanes = Pack<N>::kSize;
  constexpr std::int64_t kWide = 8;
  if (dims.inner == 1 && dims.dim >= kWide) {
    const bool whole = dims.dim % kLanes == 0 && std::ranges::all_of(in.of, is_aligned);
    if (whole) return sum_columns<T, kLanes>(ctx, name, dims.outer, dims.dim, term, put, in);
    return sum_columns<T, 1>(ctx, name, dims.outer, dims.dim, term, put, in);
  }
  const Divisor inner(dims.inner);
  // from the end of a channel's stretch to the next
  const std::int64_t gap = (dims.dim - 1) * dims.inner;
  sum_rows<T>(
      ctx, name, dims.dim, dims.outer * dims.inner,
      [=] __host__ __device__(std::int64_t d, std::int64_t c) {
        const std::int64_t i = c + c / inner * gap + d * inner.value();
        N v[kInputs];
        for (int k = 0; k < kInputs; ++k) v[k] = in.of[k][i];
        return term_of(term, d, v);
      },
      put);
}

// put(d, the sum of term(d, x's number) over the numbers of d) for each d; with a second tensor in
// the same order, of term(d, x's number, its number). Takes the context's scratch.
template <class T, class Term, class Put, class... X>
void sum_channels(Context& ctx, const char* name, const Order& order, Term term, Put put,
                  const X*... x) {
  with_type(order.type, [&](auto one) {
    using N = decltype(one);
    sum_channels_of<T>(
        ctx, name, order.dims, term, put,
        Summands<N, sizeof...(x)>{{static_cast<const N*>(static_cast<const void*>(x))...}});
  });
}

}  // namespace shoal::ops::cuda
