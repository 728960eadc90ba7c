// Dropout on a CUDA device, with the coins that the CPU throws.
#include <algorithm>
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cuda/elementary.h"
#include "shoal/ops/cuda/launch.h"

namespace shoal::ops::cuda {

void dropout(Context& ctx, const Random::State& coins, float ratio, const Tensor& x, Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
  CHECK(ratio >= 0 && ratio < 1) << "ratio " << ratio;
  const auto first_kept =
      static_cast<std::uint32_t>(std::min(std::ceil(double{ratio} * 0x1p32), 0x1p32 - 1));
  const float scale = 1.0f / (1.0f - ratio);
  const float* const in = read(ctx, x);
  float* const out = write(ctx, y);
  const std::int64_t n = y.count();
  const std::uint64_t seed = coins.seed, number = coins.stream, first = coins.position / 4;
  // The coins of the first block of four that come before element 0's.
  const auto before = static_cast<std::int64_t>(coins.position % 4);
  each(ctx, "dropout", n == 0 ? 0 : (n + before + 3) / 4,
       [=] __host__ __device__(std::int64_t block) {
         const auto words = philox(seed, number, first + static_cast<std::uint64_t>(block));
         for (int w = 0; w < 4; ++w) {
           const std::int64_t i = 4 * block + w - before;
           if (i >= 0 && i < n)
             out[i] = words[static_cast<std::size_t>(w)] < first_kept ? 0.0f : in[i] * scale;
         }
       });
}

}  // namespace shoal::ops::cuda
