// int8: numbers of 8 bits, a scale for each block of 256. The bytes: an f32 scale for each block,
// then an i8 code for each number, then zeros up to a multiple of four. The method of rounding at
// random: Gupta et al., "Deep learning with limited numerical precision", ICML 2015.
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <cmath>

#include "shoal/base/random.h"
#include "shoal/table/codecs/eight_bits.h"
#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {
namespace {

constexpr std::size_t kInt8Block = 256;

std::size_t blocks_of(std::size_t numbers) { return divided_up(numbers, kInt8Block); }

// One call of philox gives eight numbers of 16 bits.
constexpr std::size_t kCalls = kInt8Block / 8;
// Holds the four words of each call for a block.
struct Words {
  alignas(32) std::uint32_t of[4][kCalls];
};

#if defined(__AVX2__)
// Makes philox(seed, 0, first + call) for all calls, eight at a time. A word is the lower half of
// 64 bits, where the next product reads it; the upper halves hold what came there.
void draw_words(std::uint64_t seed, std::uint64_t first, Words& words) {
  constexpr int kRounds = 10, kTogether = 8;
  const __m256i mul0 = _mm256_set1_epi64x(0xD2511F53), mul1 = _mm256_set1_epi64x(0xCD9E8D57);
  static_assert(kCalls % kTogether == 0);
  for (std::size_t call = 0; call < kCalls; call += kTogether) {
    // From lanes in this order _mm256_shuffle_ps makes eight words in a row.
    const auto at = static_cast<long long>(first + call);
    __m256i c0[2] = {_mm256_set_epi64x(at + 5, at + 4, at + 1, at),
                     _mm256_set_epi64x(at + 7, at + 6, at + 3, at + 2)};
    __m256i c1[2], c2[2] = {}, c3[2] = {};
    for (int h = 0; h < 2; ++h) c1[h] = _mm256_srli_epi64(c0[h], 32);
    auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < kRounds; ++round) {
      const __m256i key0 = _mm256_set1_epi64x(k0), key1 = _mm256_set1_epi64x(k1);
      for (int h = 0; h < 2; ++h) {
        const __m256i p0 = _mm256_mul_epu32(c0[h], mul0), p1 = _mm256_mul_epu32(c2[h], mul1);
        c0[h] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1[h]), key0);
        c2[h] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3[h]), key1);
        c1[h] = p1;
        c3[h] = p0;
      }
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    const auto store = [&](const __m256i(&two)[2], std::uint32_t* to) {
      const __m256 eight =
          _mm256_shuffle_ps(_mm256_castsi256_ps(two[0]), _mm256_castsi256_ps(two[1]), 0x88);
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + call), _mm256_castps_si256(eight));
    };
    store(c0, words.of[0]);
    store(c1, words.of[1]);
    store(c2, words.of[2]);
    store(c3, words.of[3]);
  }
}
#else
void draw_words(std::uint64_t seed, std::uint64_t first, Words& words) {
  for (std::size_t call = 0; call < kCalls; ++call) {
    const auto four = philox(seed, 0, first + call);
    for (std::size_t w = 0; w < 4; ++w) words.of[w][call] = four[w];
  }
}
#endif

// Draws a number of 16 random bits for each place of block `block`: the low halves of the calls'
// words for places below 128, the high halves for the others.
void draw(std::uint64_t seed, std::size_t block, float (&drawn)[kInt8Block]) {
  Words words;
  draw_words(seed, block * kCalls, words);
  for (std::size_t w = 0; w < 4; ++w)
    for (std::size_t call = 0; call < kCalls; ++call) {
      const auto low = static_cast<float>(static_cast<std::int32_t>(words.of[w][call] & 0xffffu));
      const auto high = static_cast<float>(static_cast<std::int32_t>(words.of[w][call] >> 16));
      drawn[w * kCalls + call] = (low + 0.5f) * 0x1p-16f;
      drawn[kInt8Block / 2 + w * kCalls + call] = (high + 0.5f) * 0x1p-16f;
    }
}

// Writes codes that are right in the mean: rounded up with the chance that the fraction says.
void to_drawn_codes(std::span<const float> numbers, float scale, const float* drawn,
                    std::byte* codes) {
  if (scale == 0) {
    std::fill_n(codes, numbers.size(), std::byte{0});
    return;
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const int code = static_cast<int>(std::floor(numbers[i] / scale + drawn[i]));
    codes[i] = static_cast<std::byte>(std::clamp(code, -kMostCode, kMostCode));
  }
}

class Int8 final : public Codec {
 public:
  explicit Int8(bool stochastic) : stochastic_(stochastic) {}
  CodecId id() const override { return int8_id; }
  std::size_t bound(std::size_t numbers) const override {
    return 4 * blocks_of(numbers) + 4 * divided_up(numbers, 4);
  }
  Payload encode(const Values& numbers, const Encoding& how) const override {
    const std::size_t n = numbers.data.size(), blocks = blocks_of(n);
    Payload payload{.codec = int8_id};
    const std::span<std::byte> bytes = allocate(payload, bound(n));
    std::byte* const codes = bytes.data() + 4 * blocks;
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t begin = block * kInt8Block;
      const auto part = numbers.data.subspan(begin, std::min(kInt8Block, n - begin));
      const float scale = scale_of(part);
      store(bytes.data() + 4 * block, scale);
      if (stochastic_) {
        float drawn[kInt8Block];
        draw(how.seed, block, drawn);
        to_drawn_codes(part, scale, drawn, codes + begin);
      } else {
        to_codes(part, scale, codes + begin);
      }
    }
    std::fill(codes + n, bytes.data() + bytes.size(), std::byte{0});
    return payload;
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    if (payload.bytes.size() != bound(count))
      return wrong_length(payload, count, "int8", bound(count));
    const std::size_t blocks = blocks_of(count);
    const std::byte* const scales = payload.bytes.data();
    const std::byte* const codes = scales + 4 * blocks;
    for (std::size_t block = 0; block < blocks; ++block)
      if (const auto scale = load<float>(scales + 4 * block); !is_scale(scale))
        return not_a_size("scale", scale);
    if (has_unused_code(codes, count)) return damage("has the code -128, which int8 does not use");
    if (!all_zero(codes + count, 4 * divided_up(count, 4) - count))
      return damage("ends with bytes that are no zeros, behind the codes of int8");
    const auto [numbers, values] = new_values(count);
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t begin = block * kInt8Block;
      from_codes(codes + begin, load<float>(scales + 4 * block),
                 numbers.subspan(begin, std::min(kInt8Block, count - begin)));
    }
    return values;
  }

 private:
  const bool stochastic_;
};

}  // namespace
}  // namespace shoal::table::codecs

namespace shoal::table {

const CodecKind int8_kind = {
    .help = "numbers of 8 bits, a scale for each 256; a quarter of the bytes",
    .amount = 0,
    .least = 0,
    .most = 0,
    .needs_feedback = false,
    .takes_bits = false,
    .takes_stochastic = true,
    .make = [](const CodecSpec& spec) -> std::unique_ptr<Codec> {
      return std::make_unique<codecs::Int8>(spec.stochastic);
    }};

}  // namespace shoal::table
