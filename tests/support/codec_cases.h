// The codecs of codecs.def as tests make them, and rows and payloads for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/table/codecs/kinds.h"

namespace shoal::table::test {

// A codec under test.
struct CodecCase {
  std::string name;
  CodecSpec spec;
  const CodecKind* kind;
  std::unique_ptr<Codec> make() const { return kind->make(spec); }
};

inline const std::vector<CodecCase>& codec_cases() {
  const auto with = [](CodecId id, float amount, std::uint8_t bits = 0) {
    return CodecSpec{.id = id, .amount = amount, .bits = bits};
  };
  static const std::vector<CodecCase> cases = {
      {"fp16", with(fp16_id, 0), &fp16_kind},
      {"bf16", with(bf16_id, 0), &bf16_kind},
      {"int8", with(int8_id, 0), &int8_kind},
      {"int8 at random", {.id = int8_id, .stochastic = true}, &int8_kind},
      {"onebit", with(onebit_id, 0), &onebit_kind},
      {"twobit", with(twobit_id, 0.5f), &twobit_kind},
      {"threshold", with(threshold_id, 0.5f), &threshold_kind},
      {"topk 32", with(topk_id, 0.01f, 32), &topk_kind},
      {"topk 8", with(topk_id, 0.02f, 8), &topk_kind},
      {"topk 2", with(topk_id, 0.02f, 2), &topk_kind},
      {"topk half", with(topk_id, 0.5f, 2), &topk_kind},
  };
  return cases;
}

inline std::vector<float> decoded(const Codec& codec, const Payload& payload, std::size_t count) {
  const Values values = or_throw(codec.decode(payload, count));
  return {values.data.begin(), values.data.end()};
}

inline std::vector<float> drawn_row(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> row(count);
  for (float& number : row) number = random.gaussian(0, 1);
  return row;
}

// Lengths on both sides of those of words, blocks and chunks.
inline constexpr std::size_t kLengths[] = {0,   1,   31,   32,   33,   255,  256,
                                           257, 300, 4095, 4096, 4097, 10000};

// A row that is to be sent.
struct NamedRow {
  const char* name;
  std::vector<float> numbers;
};

inline std::vector<NamedRow> rows_of(std::size_t n) {
  std::vector<NamedRow> rows = {{"gaussian", drawn_row(n, n)}, {"zeros", std::vector<float>(n)}};
  rows.push_back({"one huge", drawn_row(n, n + 1)});
  if (n > 0) rows.back().numbers[n / 2] = -std::numeric_limits<float>::max();
  rows.push_back({"all huge", std::vector<float>(n, std::numeric_limits<float>::max())});
  rows.push_back({"denormals", drawn_row(n, n + 2)});
  for (float& number : rows.back().numbers) number *= 0x1p-140f;
  rows.push_back({"least", std::vector<float>(n, -0x1p-149f)});
  return rows;
}

inline float greatest_of(const std::vector<float>& row) {
  float greatest = 0;
  for (const float number : row) greatest = std::max(greatest, std::abs(number));
  return greatest;
}

inline std::vector<std::byte> bytes_of(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 2 <= hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

inline std::string hex_of(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte byte : bytes)
    for (const int shift : {4, 0})
      hex += "0123456789abcdef"[static_cast<unsigned>(byte) >> shift & 15];
  return hex;
}

inline std::string encoded(const CodecKind& kind, const CodecSpec& spec,
                           const std::vector<float>& row) {
  return hex_of(kind.make(spec)->encode({row, nullptr}).bytes);
}
inline std::vector<float> there_and_back(const CodecKind& kind, const CodecSpec& spec,
                                         const std::vector<float>& row) {
  const auto codec = kind.make(spec);
  return decoded(*codec, codec->encode({row, nullptr}), row.size());
}

}  // namespace shoal::table::test
