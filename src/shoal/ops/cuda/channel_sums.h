// Sums over the numbers of each channel, for tensors that are seen as outer x dim x inner numbers.
//
// For .cu files alone.
#pragma once

#include <bit>
#include <vector>

#include "shoal/ops/cuda/channels.h"

namespace shoal::ops::cuda {

// A SumTarget is where a kernel puts the sums that a caller asked for by SumInto.
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

// Threads add a few rows in float32 before they add that in double.
inline __host__ __device__ TwoFloats operator+(TwoFloats a, TwoFloats b) {
  return {a.first + b.first, a.second + b.second};
}
inline __host__ __device__ TwoSums operator+(TwoSums a, TwoFloats b) {
  return {a.first + b.first, a.second + b.second};
}
template <class T>
struct PartOf;
template <>
struct PartOf<double> {
  using Type = float;
};
template <>
struct PartOf<TwoSums> {
  using Type = TwoFloats;
};
inline __host__ __device__ float part(double sum) { return static_cast<float>(sum); }
inline __host__ __device__ TwoFloats part(TwoSums sums) {
  return {static_cast<float>(sums.first), static_cast<float>(sums.second)};
}

// The numbers that sums are made of: of one tensor, or of two in the same order.
template <class N, int kInputs>
struct Summands {
  const N* of[kInputs];
};
template <class N>
__host__ __device__ auto term_of(const auto& term, const auto& constant, const N (&v)[1]) {
  return term(constant, value(v[0]));
}
template <class N>
__host__ __device__ auto term_of(const auto& term, const auto& constant, const N (&v)[2]) {
  return term(constant, value(v[0]), value(v[1]));
}

// Tiles share the rows and packs of a matrix among the threads of blocks: a block has `width`
// threads side by side, one a pack, and as many above each other as its threads suffice for. It
// depends on the matrix alone, so the order of additions is the same on every device.
struct Tiles {
  // `width` is a power of two. Makes at most `most` blocks, and gives a thread kRows rows at least.
  Tiles(std::int64_t rows, std::int64_t packs, int width, std::int64_t most)
      : rows(rows), packs(packs), width(width), height(kThreads / width) {
    across = (packs + width - 1) / width;
    const std::int64_t enough = std::int64_t{height} * kRows;
    down = std::clamp<std::int64_t>((rows + enough - 1) / enough, 1,
                                    std::max<std::int64_t>(1, most / across));
    size = (rows + down - 1) / down;
  }
  static constexpr int kRows = 4;
  std::int64_t rows, packs;
  int width, height;
  std::int64_t across, down, size;  // blocks side by side, above each other; rows of a block
};

// Sums of numbers with dim last; packs are kLanes neighbours. Terms that are single numbers are
// kept in `terms`, too, unless it is null.
template <class T, int kLanes, int kInputs, class N, class Constant, class Term>
struct NumberColumns {
  using Sum = typename PartOf<T>::Type;
  static constexpr int kSize = kLanes;
  Summands<N, kInputs> in;
  Constant constant;
  Term term;
  std::int64_t dim;
  N* terms = nullptr;

  // Adds up rows first, first + step ... before `last`, of a pack.
  __host__ __device__ void add(std::int64_t first, std::int64_t last, int step, std::int64_t pack,
                               Sum (&result)[kLanes]) const {
    constexpr int kAtOnce = 4, kBurst = 4;  // rows that are read together; times that, in float32
    const std::int64_t d = pack * kLanes;
    decltype(constant(d)) constants[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) constants[lane] = constant(d + lane);
    T sums[kLanes] = {};
    for (std::int64_t row = first; row < last;) {
      Sum parts[kLanes] = {};
      for (int i = 0; i < kBurst && row < last; ++i, row += kAtOnce * step) {
        const std::int64_t left = (last - row + step - 1) / step;
        const int some = left < kAtOnce ? static_cast<int>(left) : kAtOnce;
        PacksOf<kLanes, kAtOnce, N> rows[kInputs];
        for (int k = 0; k < kInputs; ++k)
          rows[k] = load_rows<kLanes, kAtOnce>(in.of[k] + row * dim + d, step * dim, some);
        for (int r = 0; r < kAtOnce; ++r)
          if (r < some) add_row(rows, r, (row + r * step) * dim + d, constants, parts);
      }
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] = sums[lane] + parts[lane];
    }
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = part(sums[lane]);
  }

 private:
  template <class Constants>
  __host__ __device__ void add_row(const PacksOf<kLanes, 4, N> (&rows)[kInputs], int r,
                                   std::int64_t at, const Constants& constants,
                                   Sum (&parts)[kLanes]) const {
    Pack<N, kLanes> kept{};
    for (int lane = 0; lane < kLanes; ++lane) {
      N v[kInputs];
      for (int k = 0; k < kInputs; ++k) v[k] = rows[k].row[r].at[lane];
      const Sum one = term_of(term, constants[lane], v);
      parts[lane] = parts[lane] + one;
      if constexpr (std::is_same_v<Sum, float>) kept.at[lane] = number<N>(one);
    }
    if (terms != nullptr) store(kept, terms + at, kLanes, true);
  }
};

// Sums of what blocks above each other came to.
template <class T>
struct PartialColumns {
  using Sum = T;
  static constexpr int kSize = 1;
  const typename PartOf<T>::Type* partial;  // (row, column)
  std::int64_t dim;
  __host__ __device__ void add(std::int64_t first, std::int64_t last, int step, std::int64_t pack,
                               T (&sums)[1]) const {
#ifdef __CUDA_ARCH__
#pragma unroll 8
#endif
    for (std::int64_t row = first; row < last; row += step)
      sums[0] = sums[0] + partial[row * dim + pack];
  }
};

// A thread's part of a block's work: its sums, of which parts[lane][thread] keeps one each; then
// halves of the block meet, and its first row of threads has the totals.
template <class From>
__host__ __device__ void begin_column(const Tiles& tiles, const From& from, std::int64_t across,
                                      std::int64_t down, int thread,
                                      typename From::Sum (*parts)[kThreads]) {
  const std::int64_t pack = across * tiles.width + thread % tiles.width;
  const std::int64_t first = down * tiles.size + thread / tiles.width;
  const std::int64_t end = (down + 1) * tiles.size;
  typename From::Sum sums[From::kSize] = {};
  if (pack < tiles.packs)
    from.add(first, end < tiles.rows ? end : tiles.rows, tiles.height, pack, sums);
  for (int lane = 0; lane < From::kSize; ++lane) parts[lane][thread] = sums[lane];
}
template <int kLanes, class T>
__host__ __device__ void join_columns(const Tiles& tiles, int half, int thread,
                                      T (*parts)[kThreads]) {
  if (thread >= half * tiles.width) return;
  for (int lane = 0; lane < kLanes; ++lane)
    parts[lane][thread] = parts[lane][thread] + parts[lane][thread + half * tiles.width];
}
template <class From, class T, class Put>
__host__ __device__ void end_column(const Tiles& tiles, std::int64_t across, std::int64_t down,
                                    int thread, T (*parts)[kThreads], const Put& put) {
  const std::int64_t pack = across * tiles.width + thread;
  if (thread >= tiles.width || pack >= tiles.packs) return;
  for (int lane = 0; lane < From::kSize; ++lane)
    put(down, pack * From::kSize + lane, parts[lane][thread]);
}

template <class From, class Put>
__global__ void columns_kernel(Tiles tiles, From from, Put put) {
  __shared__ typename From::Sum parts[From::kSize][kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  begin_column(tiles, from, blockIdx.x, blockIdx.y, thread, parts);
  for (int half = tiles.height / 2; half > 0; half /= 2) {
    __syncthreads();
    join_columns<From::kSize>(tiles, half, thread, parts);
  }
  end_column<From>(tiles, blockIdx.x, blockIdx.y, thread, parts, put);
}

// Calls put(block's place above each other, column, sum of its rows) for each block and column.
template <class From, class Put>
void add_columns(Context& ctx, const char* name, const Tiles& tiles, From from, Put put) {
  shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
  if (const auto run = stream.runtime().run_on_host) {
    run(stream.handle(), [=] {
      std::vector<typename From::Sum[kThreads]> parts(From::kSize);
      for (std::int64_t down = 0; down < tiles.down; ++down)
        for (std::int64_t across = 0; across < tiles.across; ++across) {
          for (int t = 0; t < kThreads; ++t)
            begin_column(tiles, from, across, down, t, parts.data());
          for (int half = tiles.height / 2; half > 0; half /= 2)
            for (int t = 0; t < kThreads; ++t)
              join_columns<From::kSize>(tiles, half, t, parts.data());
          for (int t = 0; t < tiles.width; ++t)
            end_column<From>(tiles, across, down, t, parts.data(), put);
        }
    });
    return;
  }
  const dim3 blocks(static_cast<unsigned>(tiles.across), static_cast<unsigned>(tiles.down));
  columns_kernel<<<blocks, kThreads, 0, stream.handle()>>>(tiles, from, put);
  stream.check_launch(name);
}

template <class T, class Numbers, class Put>
void sum_columns(Context& ctx, const char* name, std::int64_t outer, const Numbers& numbers,
                 Put put) {
  constexpr std::int64_t kBlocks = 264;  // two for each multiprocessor of a large GPU
  constexpr int kWidest = 32, kNarrowest = 8;
  using Sum = typename Numbers::Sum;
  const std::int64_t dim = numbers.dim, packs = dim / Numbers::kSize;
  // Takes, of the widths at which neighbours read 128 bytes together or more, the one that fits.
  int width = kWidest;
  while (width > kNarrowest && packs % width != 0) width /= 2;
  const Tiles tiles(outer, packs, width, kBlocks);
  if (tiles.down == 1)
    return add_columns(
        ctx, name, tiles, numbers,
        [=] __host__ __device__(std::int64_t, std::int64_t d, Sum total) { put(d, T{} + total); });
  Sum* const partial =
      reinterpret_cast<Sum*>(ctx.scratch(dim * tiles.down * std::int64_t{sizeof(Sum) / 4}).data());
  add_columns(ctx, name, tiles, numbers,
              [=] __host__ __device__(std::int64_t down, std::int64_t d, Sum total) {
                partial[down * dim + d] = total;
              });
  add_columns(ctx, name, Tiles(tiles.down, dim, kNarrowest, 1), PartialColumns<T>{partial, dim},
              [=] __host__ __device__(std::int64_t, std::int64_t d, T total) { put(d, total); });
}

// Returns whether the numbers of a channel are columns that are read in packs of this size.
template <int kLanes>
bool are_packs(const BroadcastDims& dims, std::initializer_list<const void*> all) {
  return dims.inner == 1 && dims.dim % kLanes == 0 &&
         std::ranges::all_of(all, [](const void* one) { return is_aligned(one); });
}

template <class T, int kInputs, class N, class Constant, class Term, class Put>
void sum_channels_of(Context& ctx, const char* name, const BroadcastDims& dims, Constant constant,
                     Term term, Put put, Summands<N, kInputs> in) {
  constexpr int kLanes = Pack<N>::kSize;
  constexpr std::int64_t kWide = 8;
  if (dims.outer == 0 || dims.dim == 0) return;
  if (dims.inner == 1 && dims.dim >= kWide) {
    if (are_packs<kLanes>(dims, {in.of[0], in.of[kInputs - 1]}))
      return sum_columns<T>(
          ctx, name, dims.outer,
          NumberColumns<T, kLanes, kInputs, N, Constant, Term>{in, constant, term, dims.dim}, put);
    return sum_columns<T>(
        ctx, name, dims.outer,
        NumberColumns<T, 1, kInputs, N, Constant, Term>{in, constant, term, dims.dim}, put);
  }
  const Divisor inner(dims.inner);
  // The distance from the end of a channel's stretch to the next.
  const std::int64_t gap = (dims.dim - 1) * dims.inner;
  sum_rows<T>(
      ctx, name, dims.dim, dims.outer * dims.inner,
      [=] __host__ __device__(std::int64_t d, std::int64_t c) {
        const std::int64_t i = c + c / inner * gap + d * inner.value();
        N v[kInputs];
        for (int k = 0; k < kInputs; ++k) v[k] = in.of[k][i];
        return T{} + term_of(term, constant(d), v);
      },
      put);
}

// Calls put(d, the sum of term(constant(d), x's number) over the numbers of d) for each d; with a
// second tensor in the same order, of term(constant(d), x's number, its number). T: double, of
// floats, or TwoSums, of TwoFloats. Takes the context's scratch.
template <class T, class Constant, class Term, class Put, class... X>
void sum_channels(Context& ctx, const char* name, const Order& order, Constant constant, Term term,
                  Put put, const X*... x) {
  with_type(order.type, [&](auto one) {
    using N = decltype(one);
    sum_channels_of<T>(ctx, name, order.dims, constant, term, put,
                       Summands<N, sizeof...(x)>{{as<N>(x)...}});
  });
}

struct NoConstant {
  __host__ __device__ float operator()(std::int64_t) const { return 0; }
};

}  // namespace shoal::ops::cuda
