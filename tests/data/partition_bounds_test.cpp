// Sets cut into parts: which part gets which record.
#include <gtest/gtest.h>

#include <numeric>

#include "shoal/base/random.h"
#include "shoal/data/partition.h"
#include "support/data_rig.h"

namespace shoal::test::partition_bounds_test {
namespace {

// ---- bounds

TEST(PartitionBounds, ByLargestRemainder) {
  struct Case {
    std::uint64_t count;
    std::vector<double> weights;
    PartBounds want;
  };
  const Case cases[] = {
      {10, {1}, {0, 10}},
      {10, {1, 1}, {0, 5, 10}},
      {10, {1, 1, 1}, {0, 4, 7, 10}},  // equal remainders: the first gets what is left
      {11, {1, 1, 1}, {0, 4, 8, 11}},
      {8, {2, 1, 1}, {0, 4, 6, 8}},
      {10, {2, 1, 1}, {0, 5, 8, 10}},        // 5, 2.5, 2.5
      {10, {0.6, 0.6, 0.8}, {0, 3, 6, 10}},  // 3, 3, 4 although no binary fraction says so
      {7, {5, 1, 1}, {0, 5, 6, 7}},
      {100, {0.05, 0.15, 0.8}, {0, 5, 20, 100}},
  };
  for (const Case& c : cases)
    EXPECT_EQ(or_throw(bounds_by_weights(c.count, c.weights)), c.want) << c.count;
}

TEST(PartitionBounds, AnyWeightsGiveEachRecordOnceAndNearlyItsShare) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Random random(seed);
    std::vector<double> weights(1 + random.below(9));
    for (double& weight : weights) weight = 0.2 + random.unit();
    const std::uint64_t count = 100 + random.below(1'000'000);
    const PartBounds bounds = or_throw(bounds_by_weights(count, weights));
    ASSERT_EQ(bounds.size(), weights.size() + 1);
    EXPECT_EQ(bounds.front(), 0u);
    EXPECT_EQ(bounds.back(), count);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t k = 0; k < weights.size(); ++k)
      EXPECT_NEAR(static_cast<double>(bounds[k + 1] - bounds[k]),
                  static_cast<double>(count) * weights[k] / total, 1);
  }
}

TEST(PartitionBounds, WeightsThatCannotBe) {
  EXPECT_FAILS_WITH("4 parts cannot be made of 3 records",
                    bounds_by_weights(3, std::vector<double>{1, 1, 1, 1}));
  EXPECT_FAILS_WITH("part 1 would get none of the 10 records",
                    bounds_by_weights(10, std::vector<double>{1000, 1}));
  for (const double bad : {0.0, -1.0, 1.0 / 0.0, 0.0 / 0.0})
    EXPECT_FAILS_WITH("a part's weight must be above 0",
                      bounds_by_weights(10, std::vector<double>{1, bad}));
}

TEST(PartitionBounds, ByDataSharding) {
  const auto bounds = [](const std::string& text, std::uint64_t count) {
    return bounds_by_sharding(text, "f", count);
  };
  EXPECT_EQ(or_throw(bounds("0 0.5\n0.5 1.0\n", 7)), (PartBounds{0, 3, 7}));
  // 0.29 * 100 is 28.999... in binary
  EXPECT_EQ(or_throw(bounds(".0 .29\r\n.29 .57\r\n.57 1", 100)), (PartBounds{0, 29, 57, 100}));
  // The last end, .999, is within one record of 500.
  EXPECT_EQ(or_throw(bounds("0 .333\n.333 .666\n.666 .999\n", 500)),
            (PartBounds{0, 166, 333, 500}));
  std::string twelve;
  for (const auto& [begin, end] : {std::pair{"0", ".05"},
                                   {".05", ".1"},
                                   {".1", ".15"},
                                   {".15", ".2"},
                                   {".2", ".25"},
                                   {".25", ".3"},
                                   {".3", ".4"},
                                   {".4", ".5"},
                                   {".5", ".6"},
                                   {".6", ".7"},
                                   {".7", ".85"},
                                   {".85", "1"}})
    twelve += str(begin, " ", end, "\n");
  EXPECT_EQ(or_throw(bounds(twelve, 60000)),
            (PartBounds{0, 3000, 6000, 9000, 12000, 15000, 18000, 24000, 30000, 36000, 42000, 51000,
                        60000}));
}

TEST(PartitionBounds, DataShardingThatCannotBe) {
  const auto says = [](const std::string& words, const std::string& text,
                       std::uint64_t count = 1000) {
    EXPECT_FAILS_WITH(words, bounds_by_sharding(text, "f", count));
  };
  says("f has no lines", "");
  says("f:1: \"0.5\" is not \"begin end\"", "0.5\n");
  says("f:2: \"0.5 1 x\" is not", "0 0.5\n0.5 1 x\n");
  says("f:2: \"\" is not", "0 0.5\n\n0.5 1\n");  // a worker without a range
  says("f:1: \"0 1.5\" is not", "0 1.5\n");
  says("f:1: \"-0.1 1\" is not", "-0.1 1\n");
  says("f:1: \"0 nan\" is not", "0 nan\n");
  says("f:1: the range ends, at 0.2, before it begins, at 0.5", "0.5 0.2\n");
  says("f:1: the range leaves out the records from 0 to 0.1", "0.1 1\n");
  says("f:2: the range leaves out the records from 0.4 to 0.5", "0 0.4\n0.5 1\n");
  says("f:2: the range overlaps the one before, which ends at 0.6", "0 0.6\n0.5 1\n");
  says("f:2: the range overlaps the one before, which ends at 1", "0 1\n0 0.5\n");
  says("f:1: the range leaves out the records from 0 to 0.5", "0.5 1\n0 0.5\n");  // not in order
  says("f:2: no range follows, which leaves out the records from 0.9 to 1", "0 0.5\n0.5 0.9\n");
  says("part 1 would get none of the 3 records", "0 0.5\n0.5 0.6\n0.6 1\n", 3);
  // One record of ten is the tolerance.
  EXPECT_TRUE(bounds_by_sharding("0 0.4\n0.5 1\n", "f", 10).ok());
}

// ---- which record goes where

TEST(PartitionModes, WhoGetsWhich) {
  const auto all = [](const Partition& partition, std::uint64_t count) {
    std::vector<std::size_t> parts;
    for (std::uint64_t i = 0; i < count; ++i) parts.push_back(partition.of(i));
    return parts;
  };
  using Parts = std::vector<std::size_t>;
  EXPECT_EQ(all(Partition::round_robin(3), 8), (Parts{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(all(Partition::blocks({0, 1, 3, 6}), 6), (Parts{0, 1, 1, 2, 2, 2}));
  const std::vector<int> labels{2, 0, 1, 0, 2, 0, 1, 2};  // by class: 1 3 5 | 2 6 | 0 4 7
  EXPECT_EQ(all(Partition::by_class({0, 3, 5, 8}, labels), 8), (Parts{2, 0, 1, 0, 2, 0, 1, 2}));
  EXPECT_EQ(all(Partition::by_class({0, 4, 8}, labels), 8), (Parts{1, 0, 0, 0, 1, 0, 1, 1}));
}

}  // namespace
}  // namespace shoal::test::partition_bounds_test
