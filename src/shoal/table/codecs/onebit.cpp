// onebit: the sign of each number, and the mean of all magnitudes. The bytes: u32 words of 32 signs
// each, the first in the highest bit, 1 for less than zero; then the mean as f32. Source: BytePS's
// "onebit", after Seide et al., "1-bit stochastic gradient descent", Interspeech 2014.
#include <cmath>

#include "shoal/base/numbers.h"
#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {
namespace {

constexpr std::size_t kSignsOfWord = 32;  // numbers

std::size_t word_bytes(std::size_t numbers) { return 4 * divided_up(numbers, kSignsOfWord); }

// Returns the signs of 32 numbers.
std::uint32_t signs_of(const float* numbers) {
  std::uint32_t bits[kSignsOfWord], word = 0;
  for (std::size_t i = 0; i < kSignsOfWord; ++i)
    bits[i] = std::uint32_t{numbers[i] < 0} << (31 - i);
  for (std::size_t i = 0; i < kSignsOfWord; ++i) word |= bits[i];
  return word;
}

float mean_magnitude(std::span<const float> numbers) {
  if (numbers.empty()) return 0;
  const double sum =
      sum_in_lanes(0, static_cast<std::int64_t>(numbers.size()), [&](std::int64_t i) {
        return static_cast<double>(std::abs(numbers[static_cast<std::size_t>(i)]));
      });
  return static_cast<float>(sum / static_cast<double>(numbers.size()));
}

class Onebit final : public Codec {
 public:
  CodecId id() const override { return onebit_id; }
  std::size_t bound(std::size_t numbers) const override { return word_bytes(numbers) + 4; }
  Payload encode(const Values& numbers, const Encoding&) const override {
    const std::span<const float> data = numbers.data;
    Payload payload{.codec = onebit_id};
    std::byte* at = allocate(payload, bound(data.size())).data();
    std::size_t i = 0;
    for (; i + kSignsOfWord <= data.size(); i += kSignsOfWord, at += 4)
      store(at, signs_of(&data[i]));
    if (i < data.size()) {
      float rest[kSignsOfWord] = {};
      std::copy(data.begin() + static_cast<std::ptrdiff_t>(i), data.end(), rest);
      store(at, signs_of(rest));
      at += 4;
    }
    store(at, mean_magnitude(data));
    return payload;
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    if (payload.bytes.size() != bound(count))
      return wrong_length(payload, count, "onebit", bound(count));
    const std::byte* const words = payload.bytes.data();
    const auto mean = load<float>(words + word_bytes(count));
    if (!is_size(mean)) return not_a_size("mean magnitude", mean);
    const std::size_t rest = count % kSignsOfWord, whole = count - rest;
    const std::uint32_t last = rest > 0 ? load<std::uint32_t>(words + whole / 8) : 0;
    if (rest > 0 && last << rest != 0) return damage("has signs behind those of its numbers");
    const auto [numbers, values] = new_values(count);
    for (std::size_t begin = 0; begin < whole; begin += kSignsOfWord) {
      const auto word = load<std::uint32_t>(words + begin / 8);
      for (std::size_t i = 0; i < kSignsOfWord; ++i)
        numbers[begin + i] = std::bit_cast<float>(bits_of(mean) | (word << i & 0x80000000u));
    }
    for (std::size_t i = 0; i < rest; ++i)
      numbers[whole + i] = std::bit_cast<float>(bits_of(mean) | (last << i & 0x80000000u));
    return values;
  }
};

}  // namespace
}  // namespace shoal::table::codecs

namespace shoal::table {

const CodecKind onebit_kind = {
    .help = "the signs, and the mean magnitude of the row; a thirty-second of the bytes",
    .amount = 0,
    .least = 0,
    .most = 0,
    .needs_feedback = true,
    .takes_bits = false,
    .takes_stochastic = false,
    .make = [](const CodecSpec&) -> std::unique_ptr<Codec> {
      return std::make_unique<codecs::Onebit>();
    }};

}  // namespace shoal::table
