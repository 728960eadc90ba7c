// int8: numbers of 8 bits, a scale for each block of 256. The bytes: an f32 scale for each block,
// then an i8 code for each number, then zeros up to a multiple of four. The method of rounding at
// random: Gupta et al., "Deep learning with limited numerical precision", ICML 2015.
#include <cmath>

#include "shoal/base/random.h"
#include "shoal/table/codecs/eight_bits.h"
#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {
namespace {

constexpr std::size_t kInt8Block = 256;

std::size_t blocks_of(std::size_t numbers) { return divided_up(numbers, kInt8Block); }

// Draws a number of 16 random bits for each place of block `block`. One call of philox gives eight
// of them: the low halves of its four words for places below 128, the high halves for the others.
void draw(std::uint64_t seed, std::size_t block, float (&drawn)[kInt8Block]) {
  constexpr std::size_t kCalls = kInt8Block / 8;
  std::uint32_t words[4][kCalls];
  for (std::size_t call = 0; call < kCalls; ++call) {
    const auto four = philox(seed, 0, block * kCalls + call);
    words[0][call] = four[0];
    words[1][call] = four[1];
    words[2][call] = four[2];
    words[3][call] = four[3];
  }
  for (std::size_t w = 0; w < 4; ++w)
    for (std::size_t call = 0; call < kCalls; ++call) {
      const auto low = static_cast<float>(static_cast<std::int32_t>(words[w][call] & 0xffffu));
      const auto high = static_cast<float>(static_cast<std::int32_t>(words[w][call] >> 16));
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
