#include <algorithm>
#include <array>
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/elementwise.h"
#include "shoal/ops/pointwise.h"

namespace shoal::ops::cpu {

void dropout(Context& ctx, const Random::State& coins, float ratio, const Tensor& x, Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
  CHECK(ratio >= 0 && ratio < 1) << "ratio " << ratio;
  const auto first_kept =
      static_cast<std::uint32_t>(std::min(std::ceil(double{ratio} * 0x1p32), 0x1p32 - 1));
  const float scale = 1.0f / (1.0f - ratio);
  const float* in = x.in();
  float* out = y.out();
  parallel_for(
      ctx.threads(), x.count(), grain_of(8), [=](int, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end;) {
          const std::uint64_t word = coins.position + static_cast<std::uint64_t>(i);
          const std::array<std::uint32_t, 4> words = philox(coins.seed, coins.stream, word / 4);
          for (std::uint64_t w = word % 4; w < 4 && i < end; ++w, ++i)
            out[i] = words[w] < first_kept ? 0.0f : in[i] * scale;
        }
      });
}

}  // namespace shoal::ops::cpu
