// Reads and writes numbers of 32 and 16 bits in kernels of a CUDA device, and launches those that
// compute each number from the numbers at the same place in other tensors: 16 bytes at a time,
// which keeps a GPU's memory busy. Arithmetic is in float32.
//
// For .cu files alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "shoal/ops/cuda/element_type.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {

__host__ __device__ inline float value(float x) { return x; }
__host__ __device__ inline float value(__nv_bfloat16 x) { return __bfloat162float(x); }
__host__ __device__ inline float value(__half x) { return __half2float(x); }

// Rounds to the nearest; what is too large for T becomes infinite.
template <class T>
__host__ __device__ inline T number(float x);
template <>
__host__ __device__ inline float number<float>(float x) {
  return x;
}
template <>
__host__ __device__ inline __nv_bfloat16 number<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__host__ __device__ inline __half number<__half>(float x) {
  return __float2half_rn(x);
}

// Calls work(T()), where T is the type of the numbers.
template <class Work>
void with_type(ElementType type, const Work& work) {
  switch (type) {
    case ElementType::kFloat32: return work(float());
    case ElementType::kBfloat16: return work(__nv_bfloat16());
    case ElementType::kFloat16: return work(__half());
  }
}

// Reads a few numbers; a kernel that reads many knows their type when it is compiled.
struct Reader {
  const void* data;
  ElementType type;
  __host__ __device__ float operator[](std::int64_t i) const {
    if (type == ElementType::kBfloat16) return value(static_cast<const __nv_bfloat16*>(data)[i]);
    if (type == ElementType::kFloat16) return value(static_cast<const __half*>(data)[i]);
    return static_cast<const float*>(data)[i];
  }
};

// A thread reads or writes the numbers of a pack at once, or 16 bytes of them.
template <class T, int kCount = 16 / sizeof(T)>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  static constexpr int kSize = kCount;
  T at[kSize];
};

inline bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

// `count` numbers from `from` on; whole: a pack's, aligned.
template <class T, int kSize = Pack<T>::kSize>
__host__ __device__ Pack<T, kSize> load(const T* from, int count, bool whole) {
  if (whole) return *reinterpret_cast<const Pack<T, kSize>*>(from);
  Pack<T, kSize> pack{};
  for (int k = 0; k < kSize; ++k)
    if (k < count) pack.at[k] = from[k];
  return pack;
}
template <class T, int kSize>
__host__ __device__ void store(const Pack<T, kSize>& pack, T* to, int count, bool whole) {
  if (whole) {
    *reinterpret_cast<Pack<T, kSize>*>(to) = pack;
    return;
  }
  for (int k = 0; k < kSize; ++k)
    if (k < count) to[k] = pack.at[k];
}

// Two results of one number, and where they go.
struct TwoFloats {
  float first, second;
};
template <class T>
struct TwoTargets {
  T *first, *second;
};

// Targets and sources whose type is known.
template <class T>
T* as(void* data) {
  return static_cast<T*>(data);
}
template <class T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
TwoTargets<T> as(TwoTargets<void> to) {
  return {as<T>(to.first), as<T>(to.second)};
}
inline bool is_aligned(TwoTargets<void> to) {
  return is_aligned(to.first) && is_aligned(to.second);
}

// One pack of results, from the packs of what they are computed from.
template <class T, class F, class... X>
__host__ __device__ void put_pack(T* to, std::int64_t i, int count, bool whole, const F& f,
                                  const Pack<X>&... x) {
  Pack<T> y{};
  for (int k = 0; k < Pack<T>::kSize; ++k)
    if (k < count) y.at[k] = number<T>(f(i + k, value(x.at[k])...));
  store(y, to + i, count, whole);
}
template <class T, class F, class... X>
__host__ __device__ void put_pack(TwoTargets<T> to, std::int64_t i, int count, bool whole,
                                  const F& f, const Pack<X>&... x) {
  Pack<T> y{}, z{};
  for (int k = 0; k < Pack<T>::kSize; ++k)
    if (k < count) {
      const TwoFloats results = f(i + k, value(x.at[k])...);
      y.at[k] = number<T>(results.first);
      z.at[k] = number<T>(results.second);
    }
  store(y, to.first + i, count, whole);
  store(z, to.second + i, count, whole);
}

template <int kSize, class F, class To, class... T>
__global__ void map_kernel(std::int64_t n, bool aligned, F f, To to, const T*... x) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x * kSize;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kSize; i < n;
       i += step) {
    const int count = n - i < kSize ? static_cast<int>(n - i) : kSize;
    const bool whole = aligned && count == kSize;
    put_pack(to, i, count, whole, f, load(x + i, count, whole)...);
  }
}

template <int kSize, class F, class To, class... T>
void map_typed(Context& ctx, const char* name, std::int64_t n, bool aligned, F f, To to,
               const T*... x) {
  shoal::cuda::CudaStream& stream = shoal::cuda::stream_of(ctx);
  if (n == 0) return;
  if (const auto run = stream.runtime().run_on_host) {
    run(stream.handle(), [=] {
      for (std::int64_t i = 0; i < n; i += kSize) {
        const int count = n - i < kSize ? static_cast<int>(n - i) : kSize;
        const bool whole = aligned && count == kSize;
        put_pack(to, i, count, whole, f, load(x + i, count, whole)...);
      }
    });
    return;
  }
  const std::int64_t packs = (n + kSize - 1) / kSize;
  const auto blocks = std::min<std::int64_t>((packs + kThreads - 1) / kThreads, kMostBlocks);
  map_kernel<kSize>
      <<<static_cast<unsigned>(blocks), kThreads, 0, stream.handle()>>>(n, aligned, f, to, x...);
  stream.check_launch(name);
}

// Computes y[i] = f(i, x[i]...) for each i in [0, n). y and each x are numbers of `type`; y may be
// an x. f: `[=] __host__ __device__(std::int64_t i, float x...) -> float`; for TwoTargets it
// returns TwoFloats.
template <class F, class To, class... X>
void map_each(Context& ctx, const char* name, ElementType type, std::int64_t n, F f, To y,
              const X*... x) {
  const bool aligned = (is_aligned(y) && ... && is_aligned(x));
  with_type(type, [&](auto one) {
    using T = decltype(one);
    map_typed<Pack<T>::kSize>(ctx, name, n, aligned, f, as<T>(y), as<T>(x)...);
  });
}

}  // namespace shoal::ops::cuda
