#include "shoal/ops/cuda/short_floats.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {

void shorten(Context& ctx, std::int64_t count, const float* from, void* to) {
  if (ctx.precision() == Precision::kBfloat16) {
    auto* const out = static_cast<__nv_bfloat16*>(to);
    each(ctx, "shorten", count,
         [=] __host__ __device__(std::int64_t i) { out[i] = __float2bfloat16_rn(from[i]); });
  } else {
    auto* const out = static_cast<__half*>(to);
    each(ctx, "shorten", count,
         [=] __host__ __device__(std::int64_t i) { out[i] = __float2half_rn(from[i]); });
  }
}

void widen(Context& ctx, std::int64_t count, const void* from, float* to, bool adds) {
  if (ctx.precision() == Precision::kBfloat16) {
    const auto* const in = static_cast<const __nv_bfloat16*>(from);
    each(ctx, "widen", count, [=] __host__ __device__(std::int64_t i) {
      to[i] = (adds ? to[i] : 0) + __bfloat162float(in[i]);
    });
  } else {
    const auto* const in = static_cast<const __half*>(from);
    each(ctx, "widen", count, [=] __host__ __device__(std::int64_t i) {
      to[i] = (adds ? to[i] : 0) + __half2float(in[i]);
    });
  }
}

}  // namespace shoal::ops::cuda
