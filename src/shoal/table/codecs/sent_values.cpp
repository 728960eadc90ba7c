#include "shoal/table/codecs/sent_values.h"

#include <cmath>

#include "shoal/base/numbers.h"
#include "shoal/table/codecs/eight_bits.h"
#include "shoal/table/codecs/parts.h"

namespace shoal::table::codecs {
namespace {

constexpr std::size_t kLevels = 8;  // bytes of the two levels

double size_of(float value) { return static_cast<double>(std::abs(value)); }

struct Levels {
  float edge = 0;  // from which on a magnitude has the high level
  double low = 0, high = 0;
  // The sum of squares that the levels leave out is that of all magnitudes less this.
  double held = 0;
};

// Returns the means of the magnitudes below the edge and of the others, whose sum is `all`; the
// mean of all twice, where one of the classes is empty.
Levels levels_at(float edge, std::span<const float> values, double all) {
  const float* const data = values.data();
  std::uint32_t high_count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) high_count += std::abs(data[i]) >= edge ? 1 : 0;
  const auto n = static_cast<double>(values.size());
  if (high_count == 0 || high_count == values.size())
    return {edge, all / n, all / n, all * all / n};
  const double high = sum_in_lanes(
      0, static_cast<std::int64_t>(values.size()),
      [&](std::int64_t i) { return std::abs(data[i]) >= edge ? size_of(data[i]) : 0; });
  const double low = all - high, low_count = n - high_count;
  return {edge, low / low_count, high / high_count,
          low * low / low_count + high * high / high_count};
}

Levels levels_of(std::span<const float> values) {
  std::uint32_t least = ~0u;
  for (const float value : values) least = std::min(least, magnitude_bits(value));
  const double greatest = std::bit_cast<float>(greatest_bits(values.data(), values.size()));
  const double all = sum_in_lanes(0, static_cast<std::int64_t>(values.size()),
                                  [&](std::int64_t i) { return size_of(values.data()[i]); });
  const auto from = [&](double edge) {
    constexpr int kSteps = 2;
    Levels levels = levels_at(static_cast<float>(edge), values, all);
    for (int step = 0; step < kSteps; ++step)
      levels = levels_at(static_cast<float>((levels.low + levels.high) / 2), values, all);
    return levels;
  };
  const Levels middle = from((std::bit_cast<float>(least) + greatest) / 2),
               mean = from(all / static_cast<double>(values.size()));
  return mean.held > middle.held ? mean : middle;
}

void write_two_bits(std::span<const float> values, std::byte* at) {
  const Levels levels = levels_of(values);
  store(at, static_cast<float>(levels.low));
  store(at + 4, static_cast<float>(levels.high));
  at += kLevels;
  constexpr std::size_t kRun = 256;
  for (std::size_t begin = 0; begin < values.size(); begin += kRun) {
    const std::size_t n = std::min(kRun, values.size() - begin);
    std::uint8_t codes[kRun] = {};
    for (std::size_t i = 0; i < n; ++i) {
      const float value = values[begin + i];
      codes[i] = static_cast<std::uint8_t>((value < 0) + 2 * (std::abs(value) >= levels.edge));
    }
    for (std::size_t i = 0; i < n; i += 4) {
      // The product's highest byte holds the codes of four bytes, the first one's lowest.
      const auto four = load<std::uint32_t>(reinterpret_cast<const std::byte*>(codes) + i);
      *at++ = static_cast<std::byte>(four * 0x01041040u >> 24);
    }
  }
}

std::string read_two_bits(const std::byte* at, std::span<float> values) {
  const float levels[2] = {load<float>(at), load<float>(at + 4)};
  for (const float level : levels)
    if (!is_size(level)) return not_a_size("level", level).message;
  at += kLevels;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const unsigned code = static_cast<unsigned>(at[i / 4]) >> 2 * (i % 4);
    const float size = levels[code >> 1 & 1];
    values[i] = std::bit_cast<float>(bits_of(size) | (code & 1) << 31);
  }
  if (const std::size_t rest = values.size() % 4;
      rest != 0 && static_cast<unsigned>(at[values.size() / 4]) >> 2 * rest != 0)
    return "has bits behind the values of a chunk of top-k";
  return "";
}

std::string read_eight_bits(const std::byte* at, std::span<float> values) {
  const auto scale = load<float>(at);
  if (!is_scale(scale)) return not_a_size("scale", scale).message;
  at += 4;
  if (has_unused_code(at, values.size()))
    return "has the code -128, which top-k with 8 bits does not use";
  from_codes(at, scale, values);
  return "";
}

}  // namespace

std::size_t value_bytes(unsigned bits, std::size_t count) {
  return bits == 32 ? 4 * count : bits == 8 ? 4 + count : kLevels + divided_up(count, 4);
}

void write_values(unsigned bits, std::span<const float> values, std::byte* at) {
  if (bits == 32) {
    std::memcpy(at, values.data(), values.size_bytes());
  } else if (bits == 8) {
    const float scale = scale_of(values);
    store(at, scale);
    to_codes(values, scale, at + 4);
  } else {
    write_two_bits(values, at);
  }
}

std::string read_values(unsigned bits, const std::byte* at, std::span<float> values) {
  if (bits == 2) return read_two_bits(at, values);
  if (bits == 8) return read_eight_bits(at, values);
  std::memcpy(values.data(), at, values.size_bytes());
  if (!all_finite(values)) return "has a value of top-k that is infinite or not a number";
  return "";
}

}  // namespace shoal::table::codecs
