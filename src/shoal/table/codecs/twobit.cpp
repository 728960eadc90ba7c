// twobit: 0 or plus or minus a threshold, in two bits each. Four numbers are a byte, the first in
// its highest bits: 11 for the threshold or more, 10 for its negative or less, 00 for what lies
// between. Zero bits follow up to a multiple of 16 numbers. The threshold is not sent; both sides
// know it. Source: MXNet's "2bit".
#include <cmath>
#include <limits>

#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {
namespace {

constexpr std::size_t kCodesOfWord = 16;               // numbers
constexpr std::size_t kTwobitRun = 64 * kCodesOfWord;  // numbers that are encoded at a time

class Twobit final : public Codec {
 public:
  explicit Twobit(float threshold) : threshold_(threshold) {}
  CodecId id() const override { return twobit_id; }
  std::size_t bound(std::size_t numbers) const override {
    return 4 * divided_up(numbers, kCodesOfWord);
  }
  Payload encode(const Values& numbers, const Encoding&) const override {
    const std::span<const float> data = numbers.data;
    Payload payload{.codec = twobit_id};
    const std::span<std::byte> bytes = allocate(payload, bound(data.size()));
    for (std::size_t begin = 0; begin < data.size(); begin += kTwobitRun) {
      const std::size_t n = std::min(kTwobitRun, data.size() - begin);
      const std::size_t padded = kCodesOfWord * divided_up(n, kCodesOfWord);
      std::uint8_t codes[kTwobitRun];
      for (std::size_t i = 0; i < n; ++i) {
        const float number = data[begin + i];
        codes[i] = static_cast<std::uint8_t>(2 * (std::abs(number) >= threshold_) +
                                             (number >= threshold_));
      }
      std::fill(codes + n, codes + padded, std::uint8_t{0});
      for (std::size_t i = 0; i < padded; i += 4) {
        // The product's highest byte holds the codes of four bytes, the first one's on top.
        const auto four = load<std::uint32_t>(reinterpret_cast<const std::byte*>(codes) + i);
        bytes[(begin + i) / 4] = static_cast<std::byte>(four * 0x40100401u >> 24);
      }
    }
    return payload;
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    if (payload.bytes.size() != bound(count))
      return wrong_length(payload, count, "twobit", bound(count));
    // 01 stands for no number: a low bit is set only beside the high one.
    std::uint32_t wrong = 0;
    for (std::size_t at = 0; at < payload.bytes.size(); at += 4) {
      const auto word = load<std::uint32_t>(payload.bytes.data() + at);
      wrong |= word & 0x55555555u & ~(word >> 1);
    }
    if (wrong != 0) return damage("has the code 01, which twobit does not use");
    const std::size_t behind = count % 4 == 0 ? 0 : 8 - 2 * (count % 4);  // bits
    const std::byte* const end = payload.bytes.data() + divided_up(count, 4);
    if ((behind > 0 && (static_cast<unsigned>(end[-1]) & ((1u << behind) - 1)) != 0) ||
        !all_zero(end, payload.bytes.size() - divided_up(count, 4)))
      return damage("has codes behind those of its numbers");
    const auto [numbers, values] = new_values(count);
    const std::size_t rest = count % kCodesOfWord;
    float last[kCodesOfWord];
    for (std::size_t begin = 0; begin < count; begin += kCodesOfWord) {
      const auto word = load<std::uint32_t>(payload.bytes.data() + begin / 4);
      const bool whole = begin + kCodesOfWord <= count;
      read_word(word, whole ? &numbers[begin] : last);
      if (!whole) std::copy_n(last, rest, &numbers[begin]);
    }
    return values;
  }

 private:
  void read_word(std::uint32_t word, float* numbers) const {
    // Bytes come from the lowest on, the codes in each from the highest on.
    constexpr std::uint32_t kShifts[kCodesOfWord] = {6,  4,  2,  0,  14, 12, 10, 8,
                                                     22, 20, 18, 16, 30, 28, 26, 24};
    const std::uint32_t size = bits_of(threshold_);
    for (std::size_t i = 0; i < kCodesOfWord; ++i) {
      const std::uint32_t code = word >> kShifts[i];
      numbers[i] = std::bit_cast<float>((size | (~code & 1) << 31) & (0 - (code >> 1 & 1)));
    }
  }

  const float threshold_;
};

}  // namespace
}  // namespace shoal::table::codecs

namespace shoal::table {

const CodecKind twobit_kind = {
    .help = "0 or plus or minus a threshold (0.5); a sixteenth of the bytes",
    .amount = 0.5f,
    .least = 0,
    .most = std::numeric_limits<float>::max(),
    .needs_feedback = true,
    .takes_bits = false,
    .takes_stochastic = false,
    .make = [](const CodecSpec& spec) -> std::unique_ptr<Codec> {
      return std::make_unique<codecs::Twobit>(spec.amount);
    }};

}  // namespace shoal::table
