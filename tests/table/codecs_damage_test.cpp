// Damaged payloads of codecs: each is refused with words, or gives finite numbers of the row's
// count.
#include <gtest/gtest.h>

#include <cmath>

#include "support/codec_cases.h"
#include "support/expect.h"

namespace shoal::table::codecs_damage_test {
namespace {

using test::bytes_of;
using test::codec_cases;
using test::CodecCase;
using test::drawn_row;

// Returns what is wrong with these bytes; "" if they are decoded, to finite numbers. They lie in
// memory of just their length, so that a sanitizer sees every read behind them.
std::string complaint(const Codec& codec, const std::vector<std::byte>& bytes, std::size_t count) {
  const auto exact = std::make_unique<std::byte[]>(bytes.size());
  std::ranges::copy(bytes, exact.get());
  const Result<Values> values =
      codec.decode({codec.id(), {exact.get(), bytes.size()}, nullptr}, count);
  if (!values.ok()) {
    EXPECT_EQ(values.error().code, Code::kPeer);
    return values.error().message;
  }
  EXPECT_EQ(values.value().data.size(), count);
  for (const float number : values.value().data) EXPECT_TRUE(std::isfinite(number));
  return "";
}

std::vector<std::byte> payload_of(const Codec& codec, const std::vector<float>& row) {
  const Payload payload = codec.encode({row, nullptr});
  return {payload.bytes.begin(), payload.bytes.end()};
}

TEST(CodecsDamage, AnotherLengthIsRefused) {
  for (const CodecCase& one : codec_cases()) {
    const auto codec = one.make();
    for (const std::size_t n : {1u, 33u, 257u, 4097u}) {
      SCOPED_TRACE(one.name + " of " + std::to_string(n));
      const std::vector<std::byte> whole = payload_of(*codec, drawn_row(n, n));
      EXPECT_EQ(complaint(*codec, whole, n), "");
      for (std::size_t length = 0; length < whole.size(); length += 1 + length / 64) {
        if (one.spec.id == threshold_id && length >= 4 && length % 4 == 0) continue;
        EXPECT_NE(complaint(*codec, {whole.begin(), whole.begin() + static_cast<int>(length)}, n),
                  "")
            << length << " bytes of " << whole.size();
      }
      std::vector<std::byte> longer = whole;
      longer.resize(whole.size() + 4);  // for threshold: place 0 again, which does not rise
      EXPECT_NE(complaint(*codec, longer, n), "");
      longer.resize(codec->bound(n) + 4);
      EXPECT_NE(complaint(*codec, longer, n), "");
    }
    const std::string other = complaint(*codec, payload_of(*codec, drawn_row(5000, 1)), 9000);
    EXPECT_EQ(other.empty(), one.spec.id == threshold_id) << one.name;
  }
}

// Seeds choose a codec, a length and some flipped bits.
TEST(CodecsDamage, FlippedBitsNeverGiveOtherThanNumbers) {
  std::size_t refused = 0, decoded = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    Random random(seed);
    const CodecCase& one = codec_cases()[random.below(codec_cases().size())];
    const auto codec = one.make();
    const std::size_t n = 1 + random.below(seed % 10 == 0 ? 9000 : 600);
    std::vector<std::byte> bytes = payload_of(*codec, drawn_row(n, seed));
    for (std::uint64_t flips = 1 + random.below(8); flips > 0; --flips) {
      // half of them in the first bytes, where heads and scales are
      const std::size_t at =
          random.below(flips % 2 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 16));
      bytes[at] ^= static_cast<std::byte>(1u << random.below(8));
    }
    SCOPED_TRACE(one.name + ", seed " + std::to_string(seed));
    ++(complaint(*codec, bytes, n).empty() ? decoded : refused);
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(decoded, 1000u);
}

TEST(CodecsDamage, RandomBytesOfTheRightLengthAreHarmless) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const CodecCase& one = codec_cases()[random.below(codec_cases().size())];
    const auto codec = one.make();
    const std::size_t n = 1 + random.below(5000);
    std::vector<std::byte> bytes = payload_of(*codec, drawn_row(n, seed));
    for (std::size_t at = one.spec.id == topk_id ? 4 : 0; at < bytes.size(); ++at)
      bytes[at] = static_cast<std::byte>(random.word());
    SCOPED_TRACE(one.name + ", seed " + std::to_string(seed));
    complaint(*codec, bytes, n);
  }
}

std::string complaint(const CodecKind& kind, std::string_view hex, std::size_t count) {
  return complaint(*kind.make({.amount = kind.amount}), bytes_of(hex), count);
}

TEST(CodecsDamage, ContentsThatNoEncoderWritesAreNamed) {
  EXPECT_EQ(complaint(fp16_kind, "0b0000", 4),
            "has 3 bytes; the 4 numbers of the row take 12 in codec fp16");
  EXPECT_EQ(complaint(fp16_kind, "0b000000003c007c", 2),
            "has number 1 that is infinite or not a number");
  EXPECT_EQ(complaint(fp16_kind, "8e000000ff7b003c", 2),
            "has number 0 that is infinite or not a number")
      << "65504 * 2^114 is beyond float32";
  EXPECT_EQ(complaint(fp16_kind, "8d000000003c", 1),
            "begins with bytes that are no exponent of codec fp16");
  EXPECT_EQ(complaint(fp16_kind, "00010000003c", 1),
            "begins with bytes that are no exponent of codec fp16");
  EXPECT_EQ(complaint(bf16_kind, "00000000803fc07f", 2),
            "has number 1 that is infinite or not a number");
  EXPECT_HAS(complaint(bf16_kind, "01000000803f", 1), "no zeros");
  EXPECT_EQ(complaint(int8_kind, "0000807f5fe04f81", 4),
            "has the scale inf, which is not finite or is negative");
  EXPECT_HAS(complaint(int8_kind, "000080bf5fe04f81", 4), "the scale -1");
  EXPECT_HAS(complaint(int8_kind, "ffff7f7f5fe04f81", 4), "the scale 3.40282e+38");
  EXPECT_EQ(complaint(int8_kind, "0402013d5fe08081", 4),
            "has the code -128, which int8 does not use");
  EXPECT_HAS(complaint(int8_kind, "0402013d5fe04f01", 3), "ends with bytes that are no zeros");
  EXPECT_EQ(complaint(onebit_kind, "000000500000c07f", 4),
            "has the mean magnitude nan, which is not finite or is negative");
  EXPECT_EQ(complaint(onebit_kind, "0000005800002040", 4), "has signs behind those of its numbers");
  EXPECT_EQ(complaint(twobit_kind, "40000000", 5), "has the code 01, which twobit does not use");
  EXPECT_EQ(complaint(twobit_kind, "ce820000", 5), "has codes behind those of its numbers");
  EXPECT_EQ(complaint(twobit_kind, "ce008000", 4), "has codes behind those of its numbers");
  EXPECT_EQ(complaint(threshold_kind, "00000000", 4),
            "has the threshold 0, which is not finite or is negative");
}

TEST(CodecsDamage, PlacesMustRiseWithinTheRow) {
  EXPECT_EQ(complaint(threshold_kind, "000000400200000002000080", 4),
            "has place 2 as entry 1; it must be at least 3 and below 4");
  EXPECT_EQ(complaint(threshold_kind, "0000004004000080", 4),
            "has place 4 as entry 0; it must be at least 0 and below 4");
  EXPECT_HAS(complaint(threshold_kind, "000000400200", 4), "a multiple of 4 from 4 to 20");
  EXPECT_EQ(complaint(topk_kind, "200000080330000000404000008040", 4),
            "has place 3 in a chunk of top-k; it must be at least 4 and below 4");
  EXPECT_EQ(complaint(topk_kind, "200000080040000000404000008040", 4),
            "has place 4 in a chunk of top-k; it must be at least 1 and below 4");
}

TEST(CodecsDamage, HeadsAndValuesOfTopKAreExamined) {
  EXPECT_EQ(complaint(topk_kind, "2000", 4), "has 2 bytes, fewer than codec topk begins with");
  EXPECT_EQ(complaint(topk_kind, "100000080030000000404000008040", 4),
            "has values of 16 bits; codec topk has 32, 8 or 2");
  EXPECT_HAS(complaint(topk_kind, "200100080030000000404000008040", 4), "has values of 288 bits");
  EXPECT_EQ(complaint(topk_kind, "200001080030000000404000008040", 4),
            "has 2049 numbers of each chunk of top-k; it must be from 1 to 2048");
  EXPECT_HAS(complaint(topk_kind, "20000000003000", 4), "has 0 numbers of each chunk");
  EXPECT_EQ(complaint(topk_kind,
                      "2000000800300000004040"
                      "0000807f",
                      4),
            "has a value of top-k that is infinite or not a number");
  EXPECT_EQ(complaint(topk_kind,
                      "20000100"
                      "0010"
                      "00004040",
                      9),
            "has place 4096 in a chunk of top-k; it must be at least 0 and below 9")
      << "bits behind the last place";
  EXPECT_EQ(complaint(topk_kind,
                      "08000008"
                      "003000"
                      "0000803f"
                      "7f80",
                      4),
            "has the code -128, which top-k with 8 bits does not use");
  EXPECT_HAS(complaint(topk_kind,
                       "08000008"
                       "003000"
                       "000080ff"
                       "7f81",
                       4),
             "the scale -inf");
  EXPECT_HAS(complaint(topk_kind,
                       "02000008"
                       "003000"
                       "00004040000080c0"
                       "0c",
                       4),
             "the level -4");
  EXPECT_EQ(complaint(topk_kind,
                      "02000008"
                      "003000"
                      "0000404000008040"
                      "1c",
                      4),
            "has bits behind the values of a chunk of top-k");
}

}  // namespace
}  // namespace shoal::table::codecs_damage_test
