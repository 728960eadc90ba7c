// topk: the greatest of each chunk, against sorting; few bits for their values; the warm-up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "support/codec_cases.h"

namespace shoal::table::codecs_topk_test {
namespace {

using test::decoded;
using test::drawn_row;
using test::encoded;
using test::greatest_of;
using test::kLengths;
using test::NamedRow;
using test::rows_of;
using test::there_and_back;

// The numbers of the literature's vector, whose pairs are (0, 3) and (3, -4), in our bytes.
TEST(CodecsTopK, TopKIsTheVectorInPackedBytes) {
  const std::vector<float> row = {3, -1, 2, -4};
  EXPECT_EQ(encoded(topk_kind, {.amount = 0.5f, .bits = 32}, row),
            "20000008"
            "003000"
            "00004040000080c0");
  EXPECT_EQ(there_and_back(topk_kind, {.amount = 0.5f, .bits = 32}, row),
            (std::vector<float>{3, 0, 0, -4}));
  EXPECT_EQ(encoded(topk_kind, {.amount = 0.5f, .bits = 2}, row),
            "02000008"
            "003000"
            "0000404000008040"
            "0c")
      << "low 3, high 4, the codes 00 and 11";
  EXPECT_EQ(encoded(topk_kind, {.amount = 0.1f}, {0, 0, 0}), "20009a01000000000000")
      << "the first of equal ones";
}

// Returns the places that a chunk must send: the greatest, the lower of equals, found by sorting.
std::vector<bool> greatest_by_sorting(std::span<const float> chunk, std::size_t k) {
  std::vector<std::size_t> order(chunk.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return std::abs(chunk[a]) > std::abs(chunk[b]); });
  std::vector<bool> sent(chunk.size());
  for (std::size_t i = 0; i < k; ++i) sent[order[i]] = true;
  return sent;
}

void expect_greatest(const std::vector<float>& row, double share) {
  const auto k = static_cast<std::size_t>(std::round(share * 4096));
  const auto exact =
      there_and_back(topk_kind, {.amount = static_cast<float>(share), .bits = 32}, row);
  for (std::size_t begin = 0; begin < row.size(); begin += 4096) {
    const std::size_t m = std::min<std::size_t>(4096, row.size() - begin);
    const auto sent = greatest_by_sorting(std::span(row).subspan(begin, m),
                                          std::max<std::size_t>(1, (k * m + 2048) / 4096));
    for (std::size_t i = 0; i < m; ++i)
      ASSERT_EQ(exact[begin + i], sent[i] ? row[begin + i] : 0)
          << "place " << i << " of the chunk from " << begin << " on, of " << row.size();
  }
}

TEST(CodecsTopK, TopKSendsTheGreatestOfEachChunk) {
  for (const double share : {0.0002, 0.01, 0.25, 0.5})
    for (const std::size_t n : kLengths) {
      for (const NamedRow& row : rows_of(n)) {
        SCOPED_TRACE(row.name);
        expect_greatest(row.numbers, share);
      }
      // many equal ones, and many in one bin of the histogram
      std::vector<float> row = drawn_row(n, 3);
      for (float& number : row) number = std::round(2 * number);
      expect_greatest(row, share);
      row = drawn_row(n, 4);
      for (float& number : row) number = 1 + number * 0x1p-18f;
      expect_greatest(row, share);
    }
}

double left_out(const std::vector<float>& row, const std::vector<float>& back) {
  double sum = 0;
  for (std::size_t i = 0; i < row.size(); ++i) sum += std::pow(row[i] - back[i], 2);
  return sum;
}

TEST(CodecsTopK, TopKWithFewBitsIsNearTheNumbers) {
  const std::vector<float> row = drawn_row(3 * 4096, 5);
  const auto back = [&](std::uint8_t bits) {
    return there_and_back(topk_kind, {.amount = 0.02f, .bits = bits}, row);
  };
  const auto exact = back(32), eight = back(8), two = back(2);
  double sent = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(eight[i], exact[i], greatest_of(row) / 127 * 0.5001);
    EXPECT_EQ(two[i] == 0, exact[i] == 0);
    EXPECT_GE(two[i] * exact[i], 0);
    sent += std::pow(exact[i], 2);
  }
  EXPECT_LT(left_out(exact, two), 0.006 * sent);
  EXPECT_GT(left_out(exact, two), 0.003 * sent) << "two levels cannot be nearer";
}

// Returns the least sum of squares that two levels can leave out, by trying every division.
double least_left_out(std::vector<float> sizes) {
  std::ranges::sort(sizes);
  double least = INFINITY;
  for (std::size_t low = 1; low < sizes.size(); ++low) {
    double sum = 0;
    for (const auto part : {std::span(sizes).first(low), std::span(sizes).subspan(low)}) {
      const double mean =
          std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(part.size());
      for (const float size : part) sum += std::pow(size - mean, 2);
    }
    least = std::min(least, sum);
  }
  return least;
}

// A few numbers are far greater than the others.
TEST(CodecsTopK, TheTwoLevelsOfTopKLeaveOutLittle) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<float> row = drawn_row(4096, seed);
    for (float& number : row) number = number * number * number;
    const auto back = [&](std::uint8_t bits) {
      return there_and_back(topk_kind, {.amount = 0.02f, .bits = bits}, row);
    };
    const std::vector<float> exact = back(32);
    std::vector<float> sizes;
    for (const float number : exact)
      if (number != 0) sizes.push_back(std::abs(number));
    EXPECT_LT(left_out(exact, back(2)), 1.25 * least_left_out(sizes)) << "seed " << seed;
  }
}

TEST(CodecsTopK, TheShareOfTopKFallsInTheWarmUp) {
  const auto codec = topk_kind.make({.amount = 0.01f, .bits = 32, .warm_up = 10});
  const std::vector<float> row = drawn_row(4096, 1);
  const auto sent = [&](Clock clock) {
    const Payload payload = codec->encode({row, nullptr}, {.state = {}, .clock = clock});
    EXPECT_LE(payload.bytes.size(), codec->bound(row.size()));
    const auto back = decoded(*codec, payload, row.size());
    return row.size() - static_cast<std::size_t>(std::ranges::count(back, 0.0f));
  };
  EXPECT_EQ(sent(-1), 1024u);
  EXPECT_EQ(sent(0), 1024u);
  EXPECT_EQ(sent(5), 205u) << "4096 sqrt(0.25 * 0.01)";
  EXPECT_EQ(sent(9), 57u) << "4096 * 0.25 * 0.04^0.9";
  EXPECT_EQ(sent(10), 41u);
  EXPECT_EQ(sent(1'000'000), 41u);
  const auto great = topk_kind.make({.amount = 0.4f, .bits = 32, .warm_up = 10});
  EXPECT_EQ(great->bound(4096), 4 + 2457u + 4 * 1638) << "a share that is greater does not rise";
}

}  // namespace
}  // namespace shoal::table::codecs_topk_test
