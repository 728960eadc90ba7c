// bf16: the upper halves of float32, rounded to the nearest, ties to even. The bytes: four zeros,
// then a u16 for each number.
#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {
namespace {

constexpr std::size_t kBf16Head = 4;

// Returns the rounded upper half; the greatest finite one instead of infinity.
std::uint16_t upper_half(float number) {
  const std::uint32_t bits = bits_of(number);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return static_cast<std::uint16_t>(rounded - ((rounded & 0x7fffu) == 0x7f80u));
}

class Bf16 final : public Codec {
 public:
  CodecId id() const override { return bf16_id; }
  std::size_t bound(std::size_t numbers) const override { return kBf16Head + 2 * numbers; }
  Payload encode(const Values& numbers, const Encoding&) const override {
    const std::span<const float> data = numbers.data;
    Payload payload{.codec = bf16_id};
    std::byte* const bytes = allocate(payload, bound(data.size())).data();
    store(bytes, std::uint32_t{0});
    for (std::size_t i = 0; i < data.size(); ++i)
      store(bytes + kBf16Head + 2 * i, upper_half(data[i]));
    return payload;
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    if (payload.bytes.size() != bound(count))
      return wrong_length(payload, count, "bf16", bound(count));
    const std::byte* const bytes = payload.bytes.data() + kBf16Head;
    if (!all_zero(payload.bytes.data(), kBf16Head))
      return damage("begins with bytes that are no zeros, as codec bf16 has them");
    const auto [numbers, values] = new_values(count);
    std::uint32_t greatest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = std::uint32_t{load<std::uint16_t>(bytes + 2 * i)} << 16;
      greatest = std::max(greatest, bits & 0x7fffffffu);
      numbers[i] = std::bit_cast<float>(bits);
    }
    if (greatest >= 0x7f800000u)
      for (std::size_t i = 0; i < count; ++i)
        if (!is_finite(numbers[i])) return not_finite(i);
    return values;
  }
};

}  // namespace
}  // namespace shoal::table::codecs

namespace shoal::table {

const CodecKind bf16_kind = {.help = "the upper halves of float32 numbers; half of the bytes",
                             .amount = 0,
                             .least = 0,
                             .most = 0,
                             .needs_feedback = false,
                             .takes_bits = false,
                             .takes_stochastic = false,
                             .make = [](const CodecSpec&) -> std::unique_ptr<Codec> {
                               return std::make_unique<codecs::Bf16>();
                             }};

}  // namespace shoal::table
