#include <algorithm>
#include <array>
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/elementwise.h"
#include "shoal/ops/pointwise.h"

namespace shoal::ops::cpu {
namespace {

// Calls f(i, the random word of element i) for each i in [begin, end).
template <class F>
void each_coin(const Random::State& coins, std::int64_t begin, std::int64_t end, const F& f) {
  for (std::int64_t i = begin; i < end;) {
    const std::uint64_t word = coins.position + static_cast<std::uint64_t>(i);
    const std::array<std::uint32_t, 4> words = philox(coins.seed, coins.stream, word / 4);
    for (std::uint64_t w = word % 4; w < 4 && i < end; ++w, ++i) f(i, words[w]);
  }
}

}  // namespace

void dropout(Context& ctx, const Random::State& coins, float ratio, const Tensor& x, Tensor& y) {
  CHECK(x.count() == y.count()) << "shapes " << x.shape().str() << " and " << y.shape().str();
  CHECK(ratio >= 0 && ratio < 1) << "ratio " << ratio;
  const auto first_kept =
      static_cast<std::uint32_t>(std::min(std::ceil(double{ratio} * 0x1p32), 0x1p32 - 1));
  const float scale = 1.0f / (1.0f - ratio);
  const LayoutPtr layout = x.layout();
  const BlockedChannels* const blocked = x.shape() == y.shape() ? as_blocked(layout) : nullptr;
  if (blocked == nullptr) {
    const float* in = x.in();
    float* out = y.out();
    return parallel_for(ctx.threads(), x.count(), grain_of(8),
                        [=](int, std::int64_t begin, std::int64_t end) {
                          each_coin(coins, begin, end, [=](std::int64_t i, std::uint32_t word) {
                            out[i] = word < first_kept ? 0.0f : in[i] * scale;
                          });
                        });
  }
  const std::byte* const in = x.read(ctx, layout);
  std::byte* const out = y.write(ctx, layout);
  const std::int64_t block = blocked->block, inner = blocked->inner, blocks = blocked->blocks(),
                     padded = blocks * block;
  const std::int64_t planes = x.count() / (blocked->channels * inner) * padded;
  with_type(blocked->type, [&](auto one) {
    using N = decltype(one);
    parallel_for(
        ctx.threads(), planes, grain_of(8 * inner), [&](int, std::int64_t begin, std::int64_t end) {
          for (std::int64_t p = begin; p < end; ++p) {
            const std::int64_t image = p / padded, c = p % padded;
            const std::int64_t at = (image * blocks + c / block) * inner * block + c % block;
            const N* const from = numbers<N>(in) + at;
            N* const to = numbers<N>(out) + at;
            if (c >= blocked->channels) {
              for (std::int64_t s = 0; s < inner; ++s) to[s * block] = N{};
              continue;
            }
            const std::int64_t first = (image * blocked->channels + c) * inner;
            each_coin(coins, first, first + inner, [=](std::int64_t i, std::uint32_t word) {
              const std::int64_t s = (i - first) * block;
              to[s] = word < first_kept ? N{} : number<N>(value(from[s]) * scale);
            });
          }
        });
  });
}

}  // namespace shoal::ops::cpu
