// fp16: halves of numbers that are multiplied by a power of two first, so that the greatest uses
// the range that halves have. The bytes: i8 exponent q, three zeros, then a half for each number.
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <cmath>

#include "shoal/table/codecs/half.h"
#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {
namespace {

constexpr std::size_t kFp16Head = 4;
constexpr int kLeastExponent = -114, kMostExponent = 127;

// Returns q with greatest * 2^q in [2^13, 2^14), or as near to that as q can be.
int exponent_of(std::uint32_t greatest) {
  if (greatest == 0) return 0;
  const int log2 = greatest >= 0x800000u ? static_cast<int>(greatest >> 23) - 127
                                         : static_cast<int>(std::bit_width(greatest)) - 150;
  return std::min(13 - log2, kMostExponent);
}

// Writes the halves of the products, of no more than `most` in magnitude.
void to_halves(const float* numbers, std::size_t n, float scale, float most, std::byte* halves) {
  std::size_t i = 0;
#if defined(__F16C__)
  const __m256 scales = _mm256_set1_ps(scale), greatest = _mm256_set1_ps(most),
               least = _mm256_set1_ps(-most);
  for (; i + 8 <= n; i += 8) {
    const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(numbers + i), scales);
    const __m256 scaled = _mm256_max_ps(least, _mm256_min_ps(greatest, product));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + 2 * i),
                     _mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < n; ++i) store(halves + 2 * i, to_half(std::clamp(numbers[i] * scale, -most, most)));
}

void from_halves(const std::byte* halves, std::size_t n, float scale, float* numbers) {
  std::size_t i = 0;
#if defined(__F16C__)
  const __m256 scales = _mm256_set1_ps(scale);
  for (; i + 8 <= n; i += 8) {
    const auto* const eight = reinterpret_cast<const __m128i*>(halves + 2 * i);
    _mm256_storeu_ps(numbers + i, _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128(eight)), scales));
  }
#endif
  for (; i < n; ++i) numbers[i] = from_half(load<std::uint16_t>(halves + 2 * i)) * scale;
}

class Fp16 final : public Codec {
 public:
  CodecId id() const override { return fp16_id; }
  std::size_t bound(std::size_t numbers) const override { return kFp16Head + 2 * numbers; }
  Payload encode(const Values& numbers, const Encoding&) const override {
    const std::span<const float> data = numbers.data;
    Payload payload{.codec = fp16_id};
    std::byte* const bytes = allocate(payload, bound(data.size())).data();
    const int q = exponent_of(greatest_bits(data.data(), data.size()));
    store(bytes, static_cast<std::uint32_t>(q) & 0xffu);
    // The greatest numbers of all would become 2^128, which is no float32, if they were rounded up.
    const float most = q == kLeastExponent ? 0x1.ffcp13f : 0x1p14f;
    to_halves(data.data(), data.size(), std::ldexp(1.0f, q), most, bytes + kFp16Head);
    return payload;
  }
  Result<Values> decode(const Payload& payload, std::size_t count) const override {
    if (payload.bytes.size() != bound(count))
      return wrong_length(payload, count, "fp16", bound(count));
    const std::byte* const bytes = payload.bytes.data();
    const auto q = load<std::int8_t>(bytes);
    if (q < kLeastExponent || !all_zero(bytes + 1, kFp16Head - 1))
      return damage("begins with bytes that are no exponent of codec fp16");
    std::uint16_t greatest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t half = load<std::uint16_t>(bytes + kFp16Head + 2 * i);
      greatest = std::max<std::uint16_t>(greatest, half & 0x7fff);
    }
    // If no half is infinite, none but the greatest can leave the range of float32.
    if (greatest >= kHalfInfinity || !is_finite(std::ldexp(from_half(greatest), -q)))
      for (std::size_t i = 0; i < count; ++i)
        if ((load<std::uint16_t>(bytes + kFp16Head + 2 * i) & 0x7fff) == greatest)
          return not_finite(i);
    const auto [numbers, values] = new_values(count);
    from_halves(bytes + kFp16Head, count, std::ldexp(1.0f, -q), numbers.data());
    return values;
  }
};

}  // namespace
}  // namespace shoal::table::codecs

namespace shoal::table {

const CodecKind fp16_kind = {
    .help = "half-precision numbers with one exponent for the row; half of the bytes",
    .amount = 0,
    .least = 0,
    .most = 0,
    .needs_feedback = false,
    .takes_bits = false,
    .takes_stochastic = false,
    .make = [](const CodecSpec&) -> std::unique_ptr<Codec> {
      return std::make_unique<codecs::Fp16>();
    }};

}  // namespace shoal::table
