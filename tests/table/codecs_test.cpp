// The codecs of codecs.def: vectors of the literature, bounds of their errors, rows of all lengths.
// codecs_topk_test has those of topk, codecs_damage_test damaged payloads.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "shoal/table/codecs/half.h"
#include "support/codec_cases.h"

namespace shoal::table::codecs_test {
namespace {

using test::codec_cases;
using test::CodecCase;
using test::decoded;
using test::drawn_row;
using test::encoded;
using test::greatest_of;
using test::hex_of;
using test::kLengths;
using test::NamedRow;
using test::rows_of;
using test::there_and_back;

std::string encoded(const CodecKind& kind, const std::vector<float>& row) {
  return encoded(kind, {.amount = kind.amount}, row);
}
std::vector<float> there_and_back(const CodecKind& kind, const std::vector<float>& row) {
  return there_and_back(kind, {.amount = kind.amount}, row);
}
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Codecs, Fp16IsTheVectors) {
  const std::vector<float> small = {3, -1, 2, -4};
  EXPECT_EQ(encoded(fp16_kind, small), "0b000000006e00e8006c00f0");
  EXPECT_EQ(there_and_back(fp16_kind, small), small);
  EXPECT_EQ(encoded(fp16_kind, {0.1f, -1}), "0d000000666200f0");
  EXPECT_EQ(there_and_back(fp16_kind, {0.1f, -1})[0], 0.0999755859375f);
  EXPECT_EQ(encoded(fp16_kind, {1e-10f}), "2f000000df72");
}

TEST(Codecs, Bf16IsTheVectors) {
  EXPECT_EQ(encoded(bf16_kind, {float_of(0x3F800000), float_of(0x3F808000), float_of(0x3F818000),
                                float_of(0x3F808001), float_of(0xC0490FDB), float_of(0x3DCCCCCD),
                                float_of(0x7F7FFFFF), float_of(0xFF7FFFFF)}),
            "00000000803f803f823f813f49c0cd3d7f7f7fff");
}

TEST(Codecs, Int8IsTheVector) {
  EXPECT_EQ(encoded(int8_kind, {3, -1, 2.5f, -4}), "0402013d5fe04f81");
  const std::vector<float> back = there_and_back(int8_kind, {3, -1, 2.5f, -4});
  for (const auto& [got, wanted] : {std::pair{back[0], 2.9921260f},
                                    {back[1], -1.0078740f},
                                    {back[2], 2.4881890f},
                                    {back[3], -4}})
    EXPECT_NEAR(got, wanted, 5e-7f);
  EXPECT_EQ(encoded(int8_kind, {0, 0, -0.0f}), "0000000000000000");
}

TEST(Codecs, OnebitIsTheVector) {
  EXPECT_EQ(encoded(onebit_kind, {3, -1, 2, -4}), "0000005000002040");
  EXPECT_EQ(there_and_back(onebit_kind, {3, -1, 2, -4}),
            (std::vector<float>{2.5f, -2.5f, 2.5f, -2.5f}));
  EXPECT_EQ(encoded(onebit_kind, {-0.0f, -2}), "000000400000803f") << "-0 is not negative";
}

// With what the numbers leave out added to the next ones, as error feedback does.
void expect_chain(const CodecKind& kind, float amount, std::vector<float> row,
                  const std::vector<std::pair<std::string, std::vector<float>>>& steps) {
  const auto codec = kind.make({.amount = amount});
  for (const auto& [hex, left] : steps) {
    const Payload payload = codec->encode({row, nullptr});
    EXPECT_EQ(hex_of(payload.bytes), hex);
    const std::vector<float> sent = decoded(*codec, payload, row.size());
    for (std::size_t i = 0; i < row.size(); ++i) row[i] -= sent[i];
    EXPECT_EQ(row, left);
  }
}

TEST(Codecs, ThresholdAndTwobitAreTheVectors) {
  expect_chain(
      threshold_kind, 2, {3, -1, 2, -4},
      {{"00000040000000000200000003000080", {1, -1, 0, -2}}, {"0000004003000080", {1, -1, 0, 0}}});
  expect_chain(
      twobit_kind, 0.5f, {0.75f, -0.25f, 0.5f, -1.25f, -0.5f},
      {{"ce800000", {0.25f, -0.25f, 0, -0.75f, 0}}, {"02000000", {0.25f, -0.25f, 0, -0.25f, 0}}});
  EXPECT_EQ(twobit_kind.amount, 0.5f);
  EXPECT_EQ(threshold_kind.amount, 0.01f);
}

// ---- bounds of errors, on rows of every length ----

// Returns the most that the number of a row may change by.
double bound_of(const CodecCase& codec, const std::vector<float>& row, std::size_t i) {
  const double size = std::abs(static_cast<double>(row[i]));
  const double denormal = 0x1p-149;  // a last place there
  if (codec.spec.id == fp16_id)
    return std::max({size * 0x1p-11, greatest_of(row) * 0x1p-37, denormal});
  if (codec.spec.id == bf16_id)
    return size > 0x1.fep127 ? size * 0x1p-8 : std::max(size * 0x1p-8, 0x1p-134);
  const std::size_t block = i / 256 * 256;
  const std::vector<float> part(
      row.begin() + static_cast<std::ptrdiff_t>(block),
      row.begin() + static_cast<std::ptrdiff_t>(std::min(block + 256, row.size())));
  const double step = greatest_of(part) / 127;
  return std::max(step * (codec.spec.stochastic ? 1.0001 : 0.5001), 64 * denormal);
}

TEST(Codecs, ErrorsOf16And8BitsAreBounded) {
  for (const CodecCase& codec : codec_cases()) {
    if (codec.spec.id != fp16_id && codec.spec.id != bf16_id && codec.spec.id != int8_id) continue;
    for (const std::size_t n : kLengths)
      for (const NamedRow& row : rows_of(n)) {
        const auto back = there_and_back(*codec.kind, codec.spec, row.numbers);
        for (std::size_t i = 0; i < n; ++i)
          ASSERT_LE(std::abs(static_cast<double>(back[i]) - static_cast<double>(row.numbers[i])),
                    bound_of(codec, row.numbers, i))
              << codec.name << ", " << row.name << " row of " << n << ", number " << i;
      }
  }
}

TEST(Codecs, OnebitTwobitAndThresholdSendWhatTheySay) {
  for (const std::size_t n : kLengths)
    for (const NamedRow& row : rows_of(n)) {
      SCOPED_TRACE(row.name);
      double sum = 0;
      for (const float number : row.numbers) sum += std::abs(static_cast<double>(number));
      const auto mean = static_cast<float>(n > 0 ? sum / static_cast<double>(n) : 0);
      const auto onebit = there_and_back(onebit_kind, row.numbers);
      const auto twobit = there_and_back(twobit_kind, {.amount = 0.3f}, row.numbers);
      const auto threshold = there_and_back(threshold_kind, {.amount = 0.3f}, row.numbers);
      for (std::size_t i = 0; i < n; ++i) {
        const float number = row.numbers[i];
        ASSERT_NEAR(onebit[i], number < 0 ? -mean : mean, mean * 1e-6f);
        ASSERT_EQ(twobit[i], number >= 0.3f ? 0.3f : number <= -0.3f ? -0.3f : 0);
        ASSERT_EQ(threshold[i], twobit[i]);
      }
    }
}

TEST(Codecs, Int8AtRandomIsRightInTheMean) {
  std::vector<float> row(256, 0.3f);
  row[0] = 127;
  const auto codec = int8_kind.make({.stochastic = true});
  double sum = 0;
  std::vector<std::string> seen;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Payload payload = codec->encode({row, nullptr}, {.state = {}, .seed = seed});
    if (seed < 2) seen.push_back(hex_of(payload.bytes));
    if (seed == 1) {
      EXPECT_EQ(hex_of(codec->encode({row, nullptr}, {.state = {}, .seed = 1}).bytes), seen[1]);
    }
    const auto back = decoded(*codec, payload, row.size());
    EXPECT_EQ(back[0], 127) << "whole numbers stay";
    for (std::size_t i = 1; i < row.size(); ++i) {
      EXPECT_TRUE(back[i] == 0 || back[i] == 1);
      sum += back[i];
    }
  }
  // The standard deviation of the mean of 102,000 draws is 0.0014.
  EXPECT_NEAR(sum / (400 * 255), 0.3, 0.006);
  EXPECT_NE(seen[0], seen[1]);
}

// ---- what all codecs have in common ----

TEST(Codecs, PayloadsOfEveryLengthAreWithinTheirBound) {
  for (const CodecCase& one : codec_cases()) {
    const auto codec = one.make();
    EXPECT_EQ(codec->id(), one.spec.id);
    EXPECT_LE(codec->bound(kMaxRowFloats), kMaxPayloadBytes) << one.name;
    EXPECT_EQ(codec->state_length(100), 0u);
    for (const std::size_t n : kLengths)
      for (const NamedRow& row : rows_of(n)) {
        const Payload payload = codec->encode({row.numbers, nullptr});
        EXPECT_EQ(payload.codec, one.spec.id);
        EXPECT_LE(payload.bytes.size(), codec->bound(n)) << one.name << " of " << n;
        if (one.spec.id != threshold_id) {
          EXPECT_EQ(payload.bytes.size(), codec->bound(n)) << one.name;
        }
        EXPECT_NE(payload.owner, nullptr);
        EXPECT_EQ(hex_of(codec->encode({row.numbers, nullptr}).bytes), hex_of(payload.bytes));
        for (const float number : decoded(*codec, payload, n))
          ASSERT_TRUE(std::isfinite(number)) << one.name << ", " << row.name;
      }
  }
}

TEST(Codecs, PayloadsMayLieAtAnyAddress) {
  const std::vector<float> row = drawn_row(5000, 6);
  for (const CodecCase& one : codec_cases()) {
    const auto codec = one.make();
    Payload payload = codec->encode({row, nullptr});
    const std::vector<float> wanted = decoded(*codec, payload, row.size());
    std::vector<std::byte> moved(payload.bytes.size() + 1);
    std::ranges::copy(payload.bytes, moved.begin() + 1);
    payload.bytes = std::span(moved).subspan(1);
    EXPECT_EQ(decoded(*codec, payload, row.size()), wanted) << one.name;
  }
}

// The processor's conversions and the loops beside them must have the same bits.
TEST(Codecs, HalvesAreTheSameInVectorsAndBesideThem) {
  Random random(7);
  std::vector<float> row(1 << 16);
  for (float& number : row) {
    do {
      number = std::bit_cast<float>(random.word());
    } while (!(std::abs(number) < 15000));
  }
  row[0] = 16000;  // so that nothing is multiplied
  const auto codec = fp16_kind.make({});
  const Payload payload = codec->encode({row, nullptr});
  ASSERT_EQ(payload.bytes[0], std::byte{0});
  for (std::size_t i = 0; i < row.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, &payload.bytes[4 + 2 * i], 2);
    ASSERT_EQ(half, codecs::to_half(row[i])) << row[i];
  }
  std::vector<std::byte> bytes(4);
  std::vector<float> wanted;
  for (unsigned half = 0; half < 1 << 16; ++half) {
    if ((half & 0x7c00) == 0x7c00) continue;
    bytes.push_back(static_cast<std::byte>(half));
    bytes.push_back(static_cast<std::byte>(half >> 8));
    wanted.push_back(codecs::from_half(static_cast<std::uint16_t>(half)));
    ASSERT_EQ(codecs::to_half(wanted.back()), half);
  }
  EXPECT_EQ(decoded(*codec, {fp16_id, bytes, nullptr}, wanted.size()), wanted);
  EXPECT_EQ(wanted[1], 0x1p-24f);
  EXPECT_EQ(codecs::to_half(65519), 0x7bff);
  EXPECT_EQ(codecs::to_half(65520), codecs::kHalfInfinity);
}

}  // namespace
}  // namespace shoal::table::codecs_test
