// How kernels of a CUDA device are written: as functions of one element, or as sums over rows. A
// stream without a GPU (tests) runs the same functions as loops on the host, in the same order of
// additions.
//
// For .cu files alone. The functions are lambdas `[=] __host__ __device__ (std::int64_t i) {...}`
// over plain values and pointers to the device's memory.
#pragma once

#include <algorithm>
#include <cstdint>

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

// f(i) for each i in [0, n), in any order.
template <class F>
void each(Context& ctx, const char* name, std::int64_t n, F f) {
  shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
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

// One block sums a row: thread t the columns t, t + kThreads ..., then halves meet.
template <class T, class Value, class Join, class Put>
__global__ void reduce_kernel(std::int64_t columns, Value value, Join join, Put put) {
  __shared__ T sums[kThreads];
  const std::int64_t row = blockIdx.x;
  const int t = static_cast<int>(threadIdx.x);
  T sum{};
  for (std::int64_t c = t; c < columns; c += kThreads) sum = join(sum, value(row, c));
  sums[t] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) sums[t] = join(sums[t], sums[t + half]);
  }
  if (t == 0) put(row, sums[0]);
}

// put(row, all value(row, column) of the row's `columns` joined) for each of `rows` rows. T{} is
// what joining begins with; the order is fixed.
template <class T, class Value, class Join, class Put>
void reduce(Context& ctx, const char* name, std::int64_t rows, std::int64_t columns, Value value,
            Join join, Put put) {
  shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
  if (rows == 0) return;
  if (const auto run = stream.runtime().run_on_host) {
    run(stream.handle(), [=] {
      for (std::int64_t row = 0; row < rows; ++row) {
        T sums[kThreads] = {};
        for (std::int64_t c = 0; c < columns; ++c)
          sums[c % kThreads] = join(sums[c % kThreads], value(row, c));
        for (int half = kThreads / 2; half > 0; half /= 2)
          for (int t = 0; t < half; ++t) sums[t] = join(sums[t], sums[t + half]);
        put(row, sums[0]);
      }
    });
    return;
  }
  reduce_kernel<T>
      <<<static_cast<unsigned>(rows), kThreads, 0, stream.handle()>>>(columns, value, join, put);
  stream.check_launch(name);
}

struct Add {
  template <class T>
  __host__ __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// put(sum of term(i) over [0, n)), in double: in two launches, over pieces of fixed size first.
template <class Term, class Put>
void sum(Context& ctx, const char* name, std::int64_t n, Term term, Put put) {
  constexpr std::int64_t kPiece = 16 * kThreads, kMostPieces = 1024;
  const std::int64_t pieces = std::clamp<std::int64_t>((n + kPiece - 1) / kPiece, 1, kMostPieces);
  const std::int64_t size = (n + pieces - 1) / pieces;
  double* const partial = reinterpret_cast<double*>(ctx.scratch(2 * pieces).data());
  reduce<double>(
      ctx, name, pieces, size,
      [=] __host__ __device__(std::int64_t piece, std::int64_t c) {
        const std::int64_t i = piece * size + c;
        return i < n ? static_cast<double>(term(i)) : 0.0;
      },
      Add(), [=] __host__ __device__(std::int64_t piece, double total) { partial[piece] = total; });
  reduce<double>(
      ctx, name, 1, pieces,
      [=] __host__ __device__(std::int64_t, std::int64_t c) { return partial[c]; }, Add(),
      [=] __host__ __device__(std::int64_t, double total) { put(total); });
}

}  // namespace shoal::ops::cuda
