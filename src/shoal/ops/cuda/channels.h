// Loops over tensors that are seen as outer x dim x inner numbers, with constants of each channel.
//
// For .cu files alone.
#pragma once

#include "shoal/ops/broadcast.h"
#include "shoal/ops/cuda/device_layout.h"
#include "shoal/ops/cuda/elementwise.h"

namespace shoal::ops::cuda {

// Maps an element to the d that it belongs to.
struct ChannelOf {
  explicit ChannelOf(const BroadcastDims& dims) : inner(dims.inner), dim(dims.dim) {}
  __host__ __device__ std::int64_t operator()(std::int64_t i) const { return i / inner % dim; }
  Divisor inner, dim;
};

// The order in which a kernel finds outer x dim x inner numbers: the plain one, or with dim last.
struct Order {
  // `now` is the layout of the numbers. The order is plain if it has not dim last.
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

// Makes f(constants of a channel, x...) a function of an element.
template <class C, class F>
struct OfChannel {
  ChannelOf channel;
  const C* constants;
  F f;
  template <class... X>
  __host__ __device__ auto operator()(std::int64_t i, X... x) const {
    return f(constants[channel(i)], x...);
  }
};

// Packs of several rows, so that they are on their way together.
template <int kSize, int kRows, class T>
struct PacksOf {
  Pack<T, kSize> row[kRows];
};
template <int kSize, int kRows, class T>
__host__ __device__ PacksOf<kSize, kRows, T> load_rows(const T* from, std::int64_t step, int rows) {
  PacksOf<kSize, kRows, T> packs{};
  for (int r = 0; r < kRows; ++r)
    if (r < rows) packs.row[r] = load<T, kSize>(from + r * step, kSize, true);
  return packs;
}

// The work of one of `threads` threads on rows of packs of channels: one pack in each row that it
// comes to, whose constants it reads once.
template <int kSize, class C, class F, class To, class... T>
__host__ __device__ void map_columns_of(std::int64_t thread, std::int64_t threads,
                                        std::int64_t rows, std::int64_t packs, const C* constants,
                                        const F& f, To to, const T*... x) {
  constexpr int kAtOnce = sizeof...(T) == 1 ? 4 : 2;
  const std::int64_t step = threads / packs, pack = thread % packs;
  if (thread >= step * packs) return;
  C own[kSize];
  for (int k = 0; k < kSize; ++k) own[k] = constants[pack * kSize + k];
  const std::int64_t distance = step * packs * kSize;  // from one of its packs to the next
  const auto put = [&](std::int64_t i, int some, const auto&... of) {
    for (int r = 0; r < kAtOnce; ++r, i += distance)
      if (r < some)
        put_pack(
            to, i, kSize, true, [&](std::int64_t at, auto... v) { return f(own[at - i], v...); },
            of.row[r]...);
  };
  for (std::int64_t row = thread / packs; row < rows; row += kAtOnce * step) {
    const std::int64_t i = (row * packs + pack) * kSize, left = (rows - row + step - 1) / step;
    const int some = left < kAtOnce ? static_cast<int>(left) : kAtOnce;
    put(i, some, load_rows<kSize, kAtOnce>(x + i, distance, some)...);
  }
}
template <int kSize, class C, class F, class To, class... T>
__global__ void map_columns_kernel(std::int64_t rows, std::int64_t packs, const C* constants, F f,
                                   To to, const T*... x) {
  map_columns_of<kSize>(std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                        std::int64_t{gridDim.x} * blockDim.x, rows, packs, constants, f, to, x...);
}

template <int kSize, class C, class F, class To, class... T>
void map_columns(Context& ctx, const char* name, std::int64_t rows, std::int64_t packs,
                 const C* constants, F f, To to, const T*... x) {
  shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
  const auto blocks_of = [](std::int64_t threads) { return (threads + kThreads - 1) / kThreads; };
  // `kMost` blocks are enough to fill a large GPU, and few enough that a thread reads its constants
  // for several rows.
  constexpr std::int64_t kMost = 264;
  const std::int64_t blocks = std::min(blocks_of(rows * packs), std::max(kMost, blocks_of(packs)));
  if (const auto run = stream.runtime().run_on_host) {
    run(stream.handle(), [=] {
      for (std::int64_t thread = 0; thread < blocks * kThreads; ++thread)
        map_columns_of<kSize>(thread, blocks * kThreads, rows, packs, constants, f, to, x...);
    });
    return;
  }
  map_columns_kernel<kSize><<<static_cast<unsigned>(blocks), kThreads, 0, stream.handle()>>>(
      rows, packs, constants, f, to, x...);
  stream.check_launch(name);
}

// Computes y[i] = f(constants[d], x[i]...) for each number, where d is its channel. y and each x
// are numbers in this order; y may be an x, or TwoTargets for an f that returns TwoFloats. f: `[=]
// __host__ __device__(const C& constants, float x...)`.
template <class C, class F, class To, class... X>
void map_channels(Context& ctx, const char* name, const Order& order, const C* constants, F f, To y,
                  const X*... x) {
  const auto [outer, dim, inner] = order.dims;
  const std::int64_t n = outer * dim * inner;
  if (n == 0) return;
  const bool aligned = (is_aligned(y) && ... && is_aligned(x));
  with_type(order.type, [&](auto one) {
    using N = decltype(one);
    constexpr int kSize = Pack<N>::kSize;
    if (inner == 1 && dim % kSize == 0 && aligned)
      return map_columns<kSize>(ctx, name, outer, dim / kSize, constants, f, as<N>(y), as<N>(x)...);
    map_typed<kSize>(ctx, name, n, aligned, OfChannel<C, F>{ChannelOf(order.dims), constants, f},
                     as<N>(y), as<N>(x)...);
  });
}

}  // namespace shoal::ops::cuda
