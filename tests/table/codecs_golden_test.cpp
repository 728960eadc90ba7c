// Payloads of codecs that another program made, tests/golden/make_codec_payloads.py.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "support/codec_cases.h"
#include "support/places.h"

namespace shoal::table::codecs_golden_test {
namespace {

using test::bytes_of;
using test::decoded;
using test::hex_of;

// Numbers of very different sizes that float32 holds exactly, as that program draws them.
std::vector<float> drawn(std::size_t count, std::uint32_t seed) {
  std::vector<float> numbers;
  for (std::uint32_t x = seed; numbers.size() < count;) {
    x = x * 1664525u + 1013904223u;
    numbers.push_back(std::ldexp(static_cast<float>(static_cast<int>(x >> 12) - (1 << 19)),
                                 -static_cast<int>(x >> 8 & 15)));
  }
  return numbers;
}

std::vector<std::byte> golden(const std::string& name) {
  std::ifstream file(shoal::test::repository_root() / "tests/golden/codecs" / name);
  EXPECT_TRUE(file.good()) << name;
  std::string digits;
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with('#')) digits += line;
  return bytes_of(digits);
}

TEST(CodecsGolden, PayloadsAreThoseOfAnotherProgram) {
  const auto topk = [](float share, std::uint8_t bits) {
    return CodecSpec{.id = topk_id, .amount = share, .bits = bits};
  };
  const struct {
    const char* name;
    const CodecKind& kind;
    CodecSpec spec;
    std::vector<float> row;
  } cases[] = {{"int8_600.hex", int8_kind, {}, drawn(600, 1)},
               {"int8_7.hex", int8_kind, {}, drawn(7, 2)},
               {"topk_32.hex", topk_kind, topk(0.01f, 32), drawn(10000, 3)},
               {"topk_8.hex", topk_kind, topk(0.01f, 8), drawn(10000, 4)},
               {"topk_2.hex", topk_kind, topk(0.01f, 2), drawn(10000, 5)},
               {"topk_2_quarter.hex", topk_kind, topk(0.25f, 2), drawn(5000, 6)},
               {"topk_8_half.hex", topk_kind, topk(0.5f, 8), drawn(33, 7)},
               {"topk_2_sparse.hex", topk_kind, topk(0.02f, 2), drawn(9000, 8)}};
  std::set<std::string> known;
  for (const auto& one : cases) {
    std::vector<float> row = one.row;
    if (std::string(one.name).find("sparse") != std::string::npos)
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = i % 500 == 0 ? row[i] : 0;
    const auto codec = one.kind.make(one.spec);
    const Payload payload = codec->encode({row, nullptr});
    const std::vector<std::byte> wanted = golden(one.name);
    EXPECT_EQ(hex_of(payload.bytes), hex_of(wanted)) << one.name;
    EXPECT_EQ(decoded(*codec, {payload.codec, wanted, nullptr}, row.size()),
              decoded(*codec, payload, row.size()));
    known.insert(one.name);
  }
  for (const auto& file :
       shoal::test::files_in(shoal::test::repository_root() / "tests/golden/codecs", ".hex"))
    EXPECT_TRUE(known.contains(file.filename())) << file;
}

}  // namespace
}  // namespace shoal::table::codecs_golden_test
