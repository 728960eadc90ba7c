// Tests groups by speed, shares of the data, and the files about both.
#include "shoal/parallel/tuning/grouping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "shoal/base/random.h"
#include "shoal/base/text.h"
#include "shoal/compat/mxnetg.h"
#include "shoal/data/partition.h"
#include "shoal/parallel/cluster.h"
#include "shoal/parallel/scheme_words.h"
#include "support/expect.h"
#include "support/schemes.h"

namespace shoal::parallel::grouping_test {
namespace {

using Speeds = std::vector<double>;

// Returns the mean speed of each group.
Speeds means_of(const Grouping& grouping, const Speeds& speeds) {
  Speeds means;
  for (const std::vector<int>& group : grouping.groups) {
    double sum = 0;
    for (const int worker : group) sum += speeds[static_cast<std::size_t>(worker)];
    means.push_back(sum / static_cast<double>(group.size()));
  }
  return means;
}

std::string found(const Speeds& speeds, const GroupingOptions& options = {}) {
  return text_of(find_groups(speeds, options).groups);
}

TEST(FindGroups, OfWorkersWhoseKindsArePlain) {
  EXPECT_EQ(found({20, 10, 20, 10}), "0,2|1,3");
  EXPECT_EQ(found({20.1, 9.9, 19.8, 10.2}), "0,2|1,3");
  EXPECT_EQ(found({20, 20, 10, 12}), "0,1|2,3") << "the page's example";
  EXPECT_EQ(found({5.1, 20, 9.8, 5, 20.4, 10, 4.9, 19.7, 10.1, 5.05, 20.2, 10.3}),
            "1,4,7,10|2,5,8,11|0,3,6,9")
      << "MXNet-G's three";
  EXPECT_EQ(found({35, 35.2, 1, 34.8, 35.1, 1.02}), "0,1,3,4|2,5");
  EXPECT_EQ(found({1, 2, 4, 8, 1, 2, 4, 8}), "3,7|2,6|1,5|0,4") << "as many as there are";
  EXPECT_EQ(found({1, 10, 100, 1000, 1, 10, 100, 1000}), "3,7|2,6|0,1,4,5")
      << "what tens lose to ones is nothing beside the thousands";
}

TEST(FindGroups, OneGroupWhereNobodyHoldsOthersBack) {
  EXPECT_EQ(found({7}), "0");
  EXPECT_EQ(found({7, 7}), "0,1");
  EXPECT_EQ(found({7, 7, 7, 7, 7}), "0,1,2,3,4");
  EXPECT_EQ(found({10, 10.5, 9.5, 11, 10.2, 10.9}), "0,1,2,3,4,5");
  EXPECT_EQ(find_groups(Speeds{7, 7, 7}).index, 0);
}

TEST(FindGroups, OfTwoByTheirDistanceAlone) {
  EXPECT_EQ(found({10, 11.9}), "0,1");
  EXPECT_EQ(found({10, 12}), "1|0");
  EXPECT_EQ(found({10, 12}, {.apart = 1.3}), "0,1");
  EXPECT_EQ(found({10, 20}, {.smallest = 2}), "0,1");
}

TEST(FindGroups, AnOutlierIsAGroupIfGroupsMayBeSoSmall) {
  EXPECT_EQ(found({20, 20.2, 5, 19.9, 20.1}), "0,1,3,4|2");
  EXPECT_EQ(found({20, 20.2, 5, 19.9, 20.1}, {.smallest = 2}), "0,1,2,3,4");
  EXPECT_EQ(found({40, 40, 20, 20, 5}, {.smallest = 2}), "0,1|2,3,4")
      << "the best of those that may be";
}

TEST(FindGroups, TheIndexIsCalinskisAndHarabaszs) {
  const Speeds speeds = {1, 2, 3, 10, 11, 30};
  const Grouping three = find_groups(speeds, {.apart = 2.5, .noise = 0});
  EXPECT_EQ(text_of(three.groups), "5|3,4|0,1,2");
  EXPECT_EQ(means_of(three, speeds), (Speeds{30, 10.5, 2}));
  // The mean is 9.5: SSB = 3 * 56.25 + 2 * 1 + 420.25; SSW = 2 + .5.
  EXPECT_NEAR(three.index, (591.0 / 2) / (2.5 / 3), 1e-12);
  // The noise adds .01 * (1 + 4 + 9 + 100 + 121 + 900) to SSW.
  EXPECT_NEAR(find_groups(speeds, {.apart = 2.5, .noise = 0.1}).index,
              (591.0 / 2) / ((2.5 + 11.35) / 3), 1e-12);
  EXPECT_EQ(text_of(find_groups(speeds, {.noise = 0}).groups), "5|3,4|2|0,1")
      << "395 is more than 354.6, if groups may be so near";
  const Grouping two = find_groups(Speeds{1, 2, 3, 10, 11}, {.apart = 2.5, .noise = 0});
  EXPECT_EQ(text_of(two.groups), "3,4|0,1,2");
  // The mean is 5.4: SSB = 3 * 3.4^2 + 2 * 5.1^2.
  EXPECT_NEAR(two.index, (86.7 / 1) / (2.5 / 3), 1e-12);
}

TEST(FindGroups, WithoutNoiseEqualSpeedsOutdoEveryOtherK) {
  const Grouping exact = find_groups(Speeds{20, 20, 10, 12}, {.noise = 0});
  EXPECT_EQ(text_of(exact.groups), "0,1|3|2");
  EXPECT_EQ(exact.index, std::numeric_limits<double>::infinity());
  EXPECT_EQ(text_of(find_groups(Speeds{20, 20, 10, 10}, {.noise = 0}).groups), "0,1|2,3")
      << "of equals the smaller k";
}

// Merging leaves {14, 16} and {30, 42, 52, 58}; 30 is nearer to 15 than to 45.5.
TEST(FindGroups, KMeansMovesWhatMergingPutWrong) {
  EXPECT_EQ(found({14, 16, 30, 42, 52, 58}, {.smallest = 2, .apart = 2}), "3,4,5|0,1,2");
}

TEST(FindGroups, EveryWorkerIsInOneGroupThatIsLargeAndFarEnough) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Random random(seed);
    Speeds speeds(1 + random.below(12));
    for (double& speed : speeds)
      speed = (1 + static_cast<double>(random.below(3)) * 4) * (0.8 + 0.4 * random.unit());
    const GroupingOptions options{.smallest = 1 + random.below(3)};
    const Grouping grouping = find_groups(speeds, options);
    const Speeds means = means_of(grouping, speeds);
    std::vector<int> seen(speeds.size());
    for (std::size_t g = 0; g < grouping.groups.size(); ++g) {
      for (const int worker : grouping.groups[g]) ++seen[static_cast<std::size_t>(worker)];
      if (grouping.groups.size() > 1) {
        EXPECT_GE(grouping.groups[g].size(), options.smallest);
      }
      if (g > 0) {
        EXPECT_GE(means[g - 1], options.apart * means[g]);
      }
    }
    EXPECT_EQ(seen, std::vector<int>(speeds.size(), 1));
    for (double& speed : speeds) speed *= 7;
    EXPECT_EQ(find_groups(speeds, options).groups, grouping.groups) << "whatever the unit";
  }
}

TEST(WorthChanging, OnlyWhatIsWorthIt) {
  const Groups one = {{0, 1, 2, 3}}, two = {{0, 1}, {2, 3}}, other = {{0, 2}, {1, 3}};
  EXPECT_EQ(pace_of(two, Speeds{20, 21, 10, 12}), 60);
  EXPECT_TRUE(worth_changing(one, two, Speeds{20, 20, 10, 10}));
  EXPECT_TRUE(worth_changing(other, two, Speeds{20, 20, 10, 10})) << "two have changed places";
  EXPECT_FALSE(worth_changing(two, two, Speeds{20, 20, 10, 10}));
  EXPECT_FALSE(worth_changing(two, other, Speeds{20, 20, 10, 10}));
  EXPECT_FALSE(worth_changing(one, two, Speeds{11.9, 11.9, 10, 10})) << "9.5 % of pace";
  EXPECT_TRUE(worth_changing(one, two, Speeds{12.1, 12.1, 10, 10})) << "10.5 %";
  EXPECT_FALSE(worth_changing(two, one, Speeds{11.5, 11.5, 10, 10})) << "that would lose 7 %";
  EXPECT_TRUE(worth_changing(two, one, Speeds{10.9, 10.9, 10, 10})) << "and this 4.3 %";
  EXPECT_TRUE(worth_changing(one, two, Speeds{11.9, 11.9, 10, 10}, 0.05));
}

TEST(WorthChanging, GroupsAreReadAsTheyAreWritten) {
  for (const char* const text : {"0", "0,2|1,3", "11|0,1,2"})
    EXPECT_EQ(text_of(table::scheme_of(str("grouped groups=", text)).groups.value()), text);
}

// ---- shares ----

// Computes widths as the original does: the cursor, the hundredths, the last group's rest rounded
// down.
std::vector<double> widths_there(const Groups& groups, const Speeds& speeds) {
  const auto slowest = [&](const std::vector<int>& group) {
    double least = 1e300;
    for (const int worker : group)
      least = std::min(least, speeds[static_cast<std::size_t>(worker)]);
    return least;
  };
  double total = 0, cursor = 0;
  for (const auto& group : groups) total += static_cast<double>(group.size()) * slowest(group);
  std::vector<double> widths(speeds.size());
  for (const auto& group : groups) {
    const bool last = &group == &groups.back();
    // Adds a little against binary rounding.
    const double rest =
        std::floor(100 * (1 - cursor) / static_cast<double>(group.size()) + 1e-9) / 100;
    for (const int worker : group)
      cursor += widths[static_cast<std::size_t>(worker)] =
          last ? rest : std::round(100 * slowest(group) / total) / 100;
  }
  return widths;
}

TEST(Shares, AreTheOriginalsButForTheHundredths) {
  const Groups groups = {{0, 1}, {2, 3}};
  const Speeds speeds = {20, 20, 10, 12};
  EXPECT_EQ(widths_there(groups, speeds), (Speeds{.33, .33, .17, .17})) << "the page's vector";
  EXPECT_EQ(share_weights(groups, speeds), (Speeds{20, 20, 10, 10}));
  EXPECT_EQ(or_throw(bounds_by_weights(60, share_weights(groups, speeds))),
            (PartBounds{0, 20, 40, 50, 60}));
  // The last group has three workers: 100 * .5 / 3 = 16.67 becomes 16, and two hundredths are
  // dropped.
  const Groups uneven = {{0}, {1, 2, 3}};
  const Speeds three = {30, 10, 10, 10};
  EXPECT_EQ(widths_there(uneven, three), (Speeds{.5, .16, .16, .16}));
  EXPECT_EQ(or_throw(bounds_by_weights(1200, share_weights(uneven, three))),
            (PartBounds{0, 600, 800, 1000, 1200}));
}

// ---- files ----

TEST(GroupingFiles, WithNumbersMeanTheSameWorkersWhereTheyAreReadAgain) {
  const Groups groups = {{0, 2}, {1}};
  const Speeds speeds = {20, 10, 20};
  const compat::GroupingFiles files =
      compat::grouping_files(groups, share_weights(groups, speeds),
                             std::vector<std::string>{"10.0.0.1", "10.0.0.2", "10.0.0.3"});
  EXPECT_FALSE(files.by_address) << "10.0.0.1 would be worker 2 there";
  EXPECT_EQ(files.groups, "0 2\n1\n");
  EXPECT_EQ(files.data_sharding, "0 0.4\n0.4 0.6\n0.6 1\n");
  EXPECT_EQ(compat::read_groups(files.groups).value(), text_of(groups));
  EXPECT_EQ(or_throw(bounds_by_sharding(files.data_sharding, "f", 1000)),
            (PartBounds{0, 400, 600, 1000}));
}

TEST(GroupingFiles, WithAddressesInMxnetGsOrderAreItsOwn) {
  const Groups groups = {{1, 2}, {0}};
  const Speeds speeds = {10, 20, 21};
  const compat::GroupingFiles files =
      compat::grouping_files(groups, share_weights(groups, speeds),
                             std::vector<std::string>{"10.10.10.9", "10.10.10.2", "10.10.10.10"});
  EXPECT_TRUE(files.by_address);
  EXPECT_EQ(files.groups, "10.10.10.2 10.10.10.10\n10.10.10.9\n");
  EXPECT_EQ(files.data_sharding, "0 0.2\n0.2 0.6\n0.6 1\n");
  EXPECT_EQ(compat::read_groups(files.groups).value(), text_of(groups));
  const auto machines =
      compat::machinefile_from_mxnetg(files.groups, "", files.data_sharding, kDefaultPort);
  EXPECT_EQ(machines,
            "0 10.10.10.9 29600 group=2 weight=0.2\n1 10.10.10.2 29600 group=1 weight=0.4\n2 "
            "10.10.10.10 29600 group=1 weight=0.4\n");
  EXPECT_FALSE(compat::grouping_files(groups, share_weights(groups, speeds),
                                      std::vector<std::string>{"h", "h", "g"})
                   .by_address)
      << "of one machine";
}

TEST(GroupingFiles, LeaveNothingOutWhateverTheSpeeds) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Random random(seed);
    Speeds speeds(1 + random.below(20));
    for (double& speed : speeds) speed = 0.1 + random.unit();
    const Groups groups = find_groups(speeds).groups;
    const compat::GroupingFiles files =
        compat::grouping_files(groups, share_weights(groups, speeds), {});
    const PartBounds read = or_throw(bounds_by_sharding(files.data_sharding, "f", 1'000'000)),
                     own = or_throw(bounds_by_weights(1'000'000, share_weights(groups, speeds)));
    ASSERT_EQ(read.size(), own.size());
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_NEAR(static_cast<double>(read[i]), static_cast<double>(own[i]), 20);
    EXPECT_EQ(compat::read_groups(files.groups).value(), text_of(groups));
  }
}

}  // namespace
}  // namespace shoal::parallel::grouping_test
