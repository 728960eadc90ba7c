// Launches kernels of a CUDA device, which are written as functions of one element or as sums over
// rows. A stream without a GPU (tests) runs the same functions as loops on the host, in the same
// order of additions.
//
// For .cu files alone. The functions are lambdas `[=] __host__ __device__ (std::int64_t i) {...}`
// over plain values and pointers to the device's memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shoal/ops/cuda/divisor.h"
#include "shoal/ops/cuda/numbers.h"
#include "shoal/tensor/cuda/stream.h"

namespace shoal::ops::cuda {

inline constexpr int kThreads = 256;      // of a block
inline constexpr int kMostBlocks = 4096;  // of a launch: a thread takes several elements beyond

template <class F>
__global__ void each_kernel(std::int64_t n, F f) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

// Calls f(i) for each i in [0, n), in any order.
template <class F>
void each(shoal::cuda::CudaStream& stream, const char* name, std::int64_t n, const F& f) {
  if (n == 0) return;
  if (const auto run = stream.runtime().run_on_host) {
    run(stream.handle(), [n, f] {
      for (std::int64_t i = 0; i < n; ++i) f(i);
    });
    return;
  }
  const auto blocks = std::min<std::int64_t>((n + kThreads - 1) / kThreads, kMostBlocks);
  each_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream.handle()>>>(n, f);
  stream.check_launch(name);
}

template <class F>
void each(Context& ctx, const char* name, std::int64_t n, const F& f) {
  each(shoal::cuda::stream_of(ctx), name, n, f);
}

// Joins a row by kWidth threads: a row: thread t the columns t, t + kWidth ..., then halves meet. A
// block has kThreads / kWidth rows.
template <int kWidth, class T, class Value, class Join, class Put>
__global__ void reduce_kernel(std::int64_t rows, std::int64_t columns, Value value, Join join,
                              Put put) {
  __shared__ T parts[kThreads];
  const int t = static_cast<int>(threadIdx.x) % kWidth;
  T* const own = parts + threadIdx.x - t;
  const std::int64_t row =
      std::int64_t{blockIdx.x} * (kThreads / kWidth) + static_cast<int>(threadIdx.x) / kWidth;
  T part{};
  for (std::int64_t c = t; row < rows && c < columns; c += kWidth) part = join(part, value(row, c));
  own[t] = part;
  for (int half = kWidth / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) own[t] = join(own[t], own[t + half]);
  }
  if (t == 0 && row < rows) put(row, own[0]);
}

template <int kWidth, class T, class Value, class Join, class Put>
void reduce_by(Context& ctx, const char* name, std::int64_t rows, std::int64_t columns,
               const Value& value, const Join& join, const Put& put) {
  shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
  if (rows == 0) return;
  if (const auto run = stream.runtime().run_on_host) {
    run(stream.handle(), [=] {
      for (std::int64_t row = 0; row < rows; ++row) {
        T parts[kWidth] = {};
        for (std::int64_t c = 0; c < columns; ++c)
          parts[c % kWidth] = join(parts[c % kWidth], value(row, c));
        for (int half = kWidth / 2; half > 0; half /= 2)
          for (int t = 0; t < half; ++t) parts[t] = join(parts[t], parts[t + half]);
        put(row, parts[0]);
      }
    });
    return;
  }
  constexpr std::int64_t kRows = kThreads / kWidth;
  reduce_kernel<kWidth, T>
      <<<static_cast<unsigned>((rows + kRows - 1) / kRows), kThreads, 0, stream.handle()>>>(
          rows, columns, value, join, put);
  stream.check_launch(name);
}

// Calls put(row, all value(row, column) of the row's `columns` joined) for each of `rows` rows. T{}
// is what joining begins with; the order is fixed.
template <class T, class Value, class Join, class Put>
void reduce(Context& ctx, const char* name, std::int64_t rows, std::int64_t columns,
            const Value& value, const Join& join, const Put& put) {
  constexpr std::int64_t kShort = 128;  // a warp has enough to do with these columns
  if (columns <= kShort)
    reduce_by<32, T>(ctx, name, rows, columns, value, join, put);
  else
    reduce_by<kThreads, T>(ctx, name, rows, columns, value, join, put);
}

// Two sums over the same numbers; a struct that needs no constructor, as shared memory wants it.
struct TwoSums {
  double first, second;
  __host__ __device__ TwoSums operator+(TwoSums other) const {
    return {first + other.first, second + other.second};
  }
};

struct Add {
  template <class T>
  __host__ __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// Calls put(row, sum of value(row, column)) for each of `rows` rows. Few long rows are summed in
// pieces first, as many as fill a GPU, and these are added by a second launch. Takes the context's
// scratch.
template <class T, class Value, class Put>
void sum_rows(Context& ctx, const char* name, std::int64_t rows, std::int64_t columns, Value value,
              Put put) {
  constexpr std::int64_t kPiece = 16 * kThreads, kBlocks = 2048;
  const std::int64_t pieces = std::clamp<std::int64_t>(
      (columns + kPiece - 1) / kPiece, 1,
      std::max<std::int64_t>(1, kBlocks / std::max<std::int64_t>(1, rows)));
  if (pieces == 1) return reduce<T>(ctx, name, rows, columns, value, Add(), put);
  const std::int64_t size = (columns + pieces - 1) / pieces;
  const Divisor of_row(pieces);
  T* const partial =
      reinterpret_cast<T*>(ctx.scratch(rows * pieces * std::int64_t{sizeof(T) / 4}).data());
  reduce<T>(
      ctx, name, rows * pieces, size,
      [=] __host__ __device__(std::int64_t piece, std::int64_t at) {
        const std::int64_t row = piece / of_row, c = piece % of_row * size + at;
        return c < columns ? T(value(row, c)) : T{};
      },
      Add(), [=] __host__ __device__(std::int64_t piece, T total) { partial[piece] = total; });
  reduce<T>(
      ctx, name, rows, pieces,
      [=] __host__ __device__(std::int64_t row, std::int64_t c) {
        return partial[row * pieces + c];
      },
      Add(), put);
}

// Calls put(sum of term(i) over [0, n)), in double. Takes the context's scratch.
template <class Term, class Put>
void sum(Context& ctx, const char* name, std::int64_t n, Term term, Put put) {
  sum_rows<double>(
      ctx, name, 1, n,
      [=] __host__ __device__(std::int64_t, std::int64_t c) { return double(term(c)); },
      [=] __host__ __device__(std::int64_t, double total) { put(total); });
}

}  // namespace shoal::ops::cuda
