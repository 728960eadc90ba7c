// Low rank: the vectors of the literature, sums of two workers, columns without a direction.
#include "shoal/table/codecs/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "shoal/base/random.h"

namespace shoal::table::low_rank_test {
namespace {

using Numbers = std::vector<float>;

// The factors and the matrix that one iteration gives all workers.
struct Round {
  Numbers p, q, out;
};

// The workers' matrices are of the same shape; Q is summed and halved as P is.
Round round_of(LowRank& low_rank, const std::vector<Numbers>& workers) {
  Round round{Numbers(low_rank.left_length()), Numbers(low_rank.right_length()),
              Numbers(low_rank.shape().rows * low_rank.shape().columns)};
  const float share = 1 / static_cast<float>(workers.size());
  Numbers p(round.p.size()), q(round.q.size());
  for (const Numbers& v : workers) {
    low_rank.left(v, p);
    for (std::size_t i = 0; i < p.size(); ++i) round.p[i] += share * p[i];
  }
  low_rank.orthonormalise(round.p);
  for (const Numbers& v : workers) {
    low_rank.right(v, round.p, q);
    for (std::size_t i = 0; i < q.size(); ++i) round.q[i] += share * q[i];
  }
  low_rank.product(round.p, round.q, round.out);
  low_rank.keep(round.q);
  return round;
}

void expect_near(const Numbers& got, const Numbers& wanted, float relative = 1e-6f) {
  ASSERT_EQ(got.size(), wanted.size());
  float greatest = 0;
  for (const float number : wanted) greatest = std::max(greatest, std::abs(number));
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], relative * greatest) << "number " << i;
}

LowRank of_two_by_two(const Numbers& q, float epsilon = 0) {
  LowRank low_rank({.rows = 2, .columns = 2, .rank = 1}, 1, epsilon);
  low_rank.keep(q);
  return low_rank;
}

TEST(LowRank, AMatrixOfRankOneIsWhole) {
  LowRank low_rank = of_two_by_two({1, 0});
  const Round round = round_of(low_rank, {{1, 2, 2, 4}});
  expect_near(round.p, {0.4472136f, 0.8944272f});
  expect_near(round.q, {2.2360680f, 4.4721360f});
  expect_near(round.out, {1, 2, 2, 4});
}

TEST(LowRank, WhatIsLeftOutComesWithTheNextMatrix) {
  LowRank low_rank = of_two_by_two({1, 1});
  const Numbers v = {3, 0, 0, 1};
  const Round first = round_of(low_rank, {v});
  expect_near(first.p, {0.9486833f, 0.3162278f});
  expect_near(first.q, {2.8460499f, 0.3162278f});
  expect_near(first.out, {2.7f, 0.3f, 0.9f, 0.1f});
  Numbers next = v;
  for (std::size_t i = 0; i < v.size(); ++i) next[i] += v[i] - first.out[i];
  const Round second = round_of(low_rank, {next});
  expect_near(second.out, {3.3412051f, -0.6708463f, -0.7046079f, 0.1414710f});
  for (std::size_t i = 0; i < v.size(); ++i) next[i] -= second.out[i];
  expect_near(next, {-0.0412051f, 0.3708463f, -0.1953921f, 1.7585290f});
}

TEST(LowRank, SumsOfTwoWorkersNeedNoDecoding) {
  LowRank two = of_two_by_two({1, 1}), one = of_two_by_two({1, 1});
  const Round round = round_of(two, {{4, 0, 0, 0}, {2, 0, 0, 2}});
  expect_near(round.out, round_of(one, {{3, 0, 0, 1}}).out);
  expect_near(round.out, {2.7f, 0.3f, 0.9f, 0.1f});
}

Numbers drawn(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  Numbers numbers(count);
  for (float& number : numbers) number = random.gaussian(0, 1);
  return numbers;
}

void expect_orthonormal(const LowRank& low_rank, const Numbers& p) {
  const std::size_t n = low_rank.shape().rows;
  for (std::size_t a = 0; a < low_rank.shape().rank; ++a)
    for (std::size_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (std::size_t i = 0; i < n; ++i)
        dot += static_cast<double>(p[a * n + i]) * static_cast<double>(p[b * n + i]);
      EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-6) << "columns " << a << " and " << b;
    }
}

TEST(LowRank, AMatrixOfTheRankIsWhole) {
  constexpr std::size_t kRows = 37, kColumns = 53;
  for (const std::size_t rank : {1u, 2u, 4u}) {
    const Numbers a = drawn(kRows * rank, 1), b = drawn(kColumns * rank, 2);
    Numbers v(kRows * kColumns);
    for (std::size_t i = 0; i < v.size(); ++i)
      for (std::size_t r = 0; r < rank; ++r)
        v[i] += a[i / kColumns * rank + r] * b[i % kColumns * rank + r];
    LowRank low_rank({.rows = kRows, .columns = kColumns, .rank = rank}, 5);
    const Round round = round_of(low_rank, {v});
    expect_orthonormal(low_rank, round.p);
    expect_near(round.out, v, 5e-6f);
  }
}

// The second column has only what rounding leaves of it. It must not point along the first, or the
// product would count the matrix twice.
TEST(LowRank, AColumnThatDependsOnAnotherCountsNothingTwice) {
  const Numbers a = drawn(40, 3), b = drawn(30, 4);
  Numbers v(40 * 30);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = a[i / 30] * b[i % 30];
  LowRank low_rank({.rows = 40, .columns = 30, .rank = 3}, 5);
  for (int iteration = 0; iteration < 5; ++iteration) {
    const Round round = round_of(low_rank, {v});
    expect_near(round.out, v, 1e-5f);
  }
}

TEST(LowRank, VanishingAndHugeNumbersStayFinite) {
  for (const float factor : {0.0f, 1e-44f, 1e-30f, 1e-10f, 1e15f, 1e30f}) {
    Numbers v = drawn(6 * 5, 6);
    for (float& number : v) number *= factor;
    for (const float epsilon : {0.0f, 1e-8f}) {
      LowRank low_rank({.rows = 6, .columns = 5, .rank = 2}, 7, epsilon);
      for (int iteration = 0; iteration < 3; ++iteration) {
        const Round round = round_of(low_rank, {v});
        for (const Numbers* numbers : {&round.p, &round.q, &round.out})
          for (const float number : *numbers) ASSERT_TRUE(std::isfinite(number)) << factor;
        double before = 0, after = 0;
        for (std::size_t i = 0; i < v.size(); ++i) {
          before += std::pow(v[i], 2);
          after += std::pow(static_cast<double>(v[i]) - static_cast<double>(round.out[i]), 2);
        }
        EXPECT_LE(after, before * 1.00001) << factor;
      }
    }
  }
}

TEST(LowRank, WorkersDrawTheSameFirstQ) {
  const LowRankShape shape{.rows = 9, .columns = 4, .rank = 8};
  const LowRank one(shape, 3), two(shape, 3), another(shape, 4);
  const Numbers q(one.kept().begin(), one.kept().end());
  EXPECT_EQ(one.shape().rank, 4u) << "a rank greater than the columns is as many as those";
  EXPECT_EQ(q.size(), 16u);
  EXPECT_EQ(q, Numbers(two.kept().begin(), two.kept().end()));
  EXPECT_NE(q, Numbers(another.kept().begin(), another.kept().end()));
  EXPECT_NE(Numbers(q.begin(), q.begin() + 4), Numbers(q.begin() + 4, q.begin() + 8));
}

// A column of Q that became zeros, as after an iteration of zero gradients, is drawn anew, since
// all that follows from it would be zeros too.
TEST(LowRank, ADeadColumnIsDrawnAnew) {
  LowRank low_rank({.rows = 6, .columns = 5, .rank = 2}, 8);
  const Numbers first(low_rank.kept().begin(), low_rank.kept().end());
  round_of(low_rank, {Numbers(30)});
  EXPECT_EQ(first, Numbers(low_rank.kept().begin(), low_rank.kept().end()));
  Numbers half = first;
  std::fill_n(half.begin(), 5, 0.0f);
  half[2] = 3;
  std::fill_n(half.begin() + 5, 5, 0.0f);
  low_rank.keep(half);
  EXPECT_EQ(low_rank.kept()[2], 1);
  EXPECT_EQ(low_rank.kept()[5], first[5]);
}

}  // namespace
}  // namespace shoal::table::low_rank_test
