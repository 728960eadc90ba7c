// One shard, message by message: faults and membership.
#include "shoal/table/shard.h"

#include <gtest/gtest.h>

#include <vector>

#include "shoal/base/random.h"
#include "support/shard_rig.h"

namespace shoal::table::shard_test {
namespace {

using test::plan_of;
using test::push_of;
using test::ShardRig;

std::vector<float> random_numbers(Random& random, std::size_t n) {
  std::vector<float> numbers(n);
  // a sum of them is rounded, and so depends on its order
  for (float& x : numbers) x = random.uniform(-1, 1) * random.uniform(0.1f, 10);
  return numbers;
}

TEST(Shard, ARepeatedPushIsMergedOnceAndAnsweredAgain) {
  ShardRig rig(plan_of("bsp", 2));
  rig.push(0, 0, 2);
  rig.push(0, 0, 2);
  rig.push(0, 0, 99);
  EXPECT_EQ(rig.said(), "");
  rig.push(1, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 0, row 0@1=-3v1 to 1");
  rig.push(0, 0, 2);  // its answer was lost
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 0");
  rig.push(0, 1, 0);
  rig.push(0, 0, 2);  // from before: it has the answer, as it pushed again
  rig.give(0, Get{0, 0});
  EXPECT_EQ(rig.said(), "") << "nor was a read delayed that nobody waits for";
  rig.push(1, 1, 0);
  EXPECT_EQ(rig.said(), "row 0@2=-3v2 to 0, row 0@2=-3v2 to 1");
  const ShardCounters counters = rig.shard().counters();
  EXPECT_EQ(counters.merges, 2u);
  EXPECT_EQ(counters.contributions, 4u);
  EXPECT_EQ(counters.repeated, 4u);
}

TEST(Shard, AMissingPushIsAskedForAtOnce) {
  ShardRig rig(plan_of("ssp 1", 2));
  rig.give(0, Get{0, 1});
  EXPECT_EQ(rig.said(), "need 0@0 to 0");
  rig.push(0, 1, 5);  // overtook that of clock 0
  EXPECT_EQ(rig.said(), "need 0@0 to 0");
  EXPECT_EQ(rig.shard().counters().early, 1u);
  rig.push(0, 0, 2);
  EXPECT_EQ(rig.said(), "row 0@1=-1v1 to 0");
  rig.give(0, Get{0, 2});
  EXPECT_EQ(rig.said(), "need 0@1 to 0");
  rig.push(0, 1, 2);
  EXPECT_EQ(rig.said(), "") << "two clocks ahead of worker 1";
  rig.push(1, 0, 2);
  EXPECT_EQ(rig.said(), "row 0@2=-3v3 to 0, row 0@1=-3v3 to 1");
}

// Every push and read of a BSP run by three workers, each delivered one to four times and in an
// order that random numbers make: the final bits are those of the run in order.
TEST(Shard, WhateverIsRepeatedAndReorderedTheBitsAreTheSame) {
  constexpr int kWorkers = 3;
  constexpr Clock kClocks = 5;
  const std::vector<std::uint32_t> lengths = {5, 17};
  Random numbers(3, 1);
  std::vector<std::vector<float>> gradients;
  for (int i = 0; i < kWorkers * kClocks * 2; ++i)
    gradients.push_back(random_numbers(numbers, lengths[static_cast<std::size_t>(i) % 2]));
  const auto gradient = [&](int worker, Clock clock, RowId row) -> std::span<const float> {
    return gradients[static_cast<std::size_t>((clock * kWorkers + worker) * 2 + row)];
  };
  std::vector<std::vector<float>> first;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Random random(seed, 2);
    Plan plan = plan_of("bsp", kWorkers, lengths);
    plan.rule.momentum = 0.9f;
    ShardRig rig(plan, 1);
    std::vector<std::pair<int, Message>> flight;
    Clock reads[kWorkers][2] = {};
    const auto fly = [&](int worker, Clock clock, RowId row) {
      const int copies = 1 + static_cast<int>(random.uniform(0, 4));
      for (int i = 0; i < copies; ++i) {
        flight.emplace_back(worker,
                            Push{.row = row,
                                 .clock = clock,
                                 .base = clock,
                                 .rate = 0.1f,
                                 .payload = as_payload({gradient(worker, clock, row), nullptr})});
        if (random.uniform(0, 1) < 0.3f) flight.emplace_back(worker, Get{row, clock + 1});
      }
    };
    for (int worker = 0; worker < kWorkers; ++worker)
      for (RowId row = 0; row < 2; ++row) fly(worker, 0, row);
    while (!flight.empty()) {
      const std::size_t at =
          std::min(flight.size() - 1,
                   static_cast<std::size_t>(random.uniform(0, static_cast<float>(flight.size()))));
      const auto [worker, message] = flight[at];
      flight[at] = flight.back();
      flight.pop_back();
      rig.give(worker, message);
      for (const Outgoing& one : std::exchange(rig.out(), {})) {
        const auto* row = std::get_if<RowMessage>(&one.message);
        if (row == nullptr || row->clock <= reads[one.to][row->row]) continue;
        EXPECT_EQ(row->clock, reads[one.to][row->row] + 1);
        EXPECT_EQ(row->version, row->clock);
        reads[one.to][row->row] = row->clock;
        if (row->clock < kClocks) fly(one.to, row->clock, row->row);
      }
    }
    EXPECT_EQ(rig.shard().counters().contributions,
              static_cast<std::uint64_t>(kWorkers * kClocks * 2));
    const std::vector<std::vector<float>> last = {rig.numbers(0), rig.numbers(1),
                                                  rig.numbers(0, Part::kHistory),
                                                  rig.numbers(1, Part::kHistory)};
    if (first.empty()) first = last;
    ASSERT_EQ(first, last);
  }
}

TEST(Shard, LeftOutIterationsMoveNothing) {
  ShardRig rig(plan_of("bsp", 2), 1);
  const Push nothing{.row = 0, .clock = 0, .weight = 0, .rate = 1, .payload = {}};
  rig.give(0, nothing);
  rig.push(1, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 0, row 0@1=-3v1 to 1")
      << "the mean of the one that there is";
  for (int worker = 0; worker < 2; ++worker)
    rig.give(worker, Push{.row = 0, .clock = 1, .base = 1, .weight = 0, .payload = {}});
  EXPECT_EQ(rig.said(), "row 0@2=-3v1 to 0, row 0@2=-3v1 to 1") << "no update, no version";
  EXPECT_EQ(rig.shard().counters().dropped, 3u);
  EXPECT_EQ(rig.shard().counters().merges, 1u);
}

TEST(Shard, FrozenRowsAreReadAtOnceAndNotPushed) {
  Plan plan = plan_of("bsp", 2, {1, 1});
  plan.rows.edit()[1].learns = false;
  ShardRig rig(plan, 3);
  rig.give(1, Get{1, 5});
  EXPECT_EQ(rig.said(), "row 1@5=3v0 to 1");
  EXPECT_EQ(rig.refused(0, push_of(1, 0, 1)),
            "worker 0's push of row 1 at clock 0 is of a row that does not learn");
}

// ---- membership ----

TEST(Shard, WhatALostWorkerLeftUnfinishedIsDropped) {
  ShardRig rig(plan_of("bsp", 3, {1, 1}));
  for (int worker = 0; worker < 3; ++worker)
    for (RowId row = 0; row < 2; ++row) rig.push(worker, 0, 0, row);
  rig.said();
  rig.push(2, 1, 100, 0);  // of row 0 alone
  EXPECT_EQ(rig.shard().clock_of(2), 1);
  for (int worker = 0; worker < 2; ++worker) rig.push(worker, 1, 2, 1);
  rig.push(0, 1, 2, 0);
  EXPECT_EQ(rig.said(), "");
  rig.leave(2);
  EXPECT_EQ(rig.said(), "row 1@2=-2v2 to 0, row 1@2=-2v2 to 1");
  rig.push(1, 1, 2, 0);
  EXPECT_EQ(rig.said(), "row 0@2=-2v2 to 0, row 0@2=-2v2 to 1");
  EXPECT_EQ(rig.shard().counters().dropped, 1u);
  EXPECT_EQ(rig.refused(2, push_of(1, 1, 100)),
            "worker 2 sends a Push, and it is counted out since it was lost");
  rig.leave(2);
  rig.leave(7);
  EXPECT_EQ(rig.said(), "");
}

TEST(Shard, APushThatWasWholeWhenItsWorkerWasLostCounts) {
  ShardRig rig(plan_of("bsp", 2));
  rig.push(1, 0, 4);
  rig.leave(1);
  rig.push(0, 0, 2);
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 0");
  rig.push(0, 1, 2);
  EXPECT_EQ(rig.said(), "row 0@2=-5v2 to 0");
}

TEST(Shard, ARetiredWorkersPushesOnTheWayAreWaitedFor) {
  ShardRig rig(plan_of("bsp", 2));
  rig.give(1, Retire{1});  // overtook its push of clock 0
  rig.push(0, 0, 2);
  EXPECT_EQ(rig.said(), "");
  rig.push(1, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 0, row 0@1=-3v1 to 1");
  rig.push(0, 1, 2);
  EXPECT_EQ(rig.said(), "row 0@2=-5v2 to 0");
  rig.give(1, Retire{1});
  rig.give(1, Get{0, 1});
  EXPECT_EQ(rig.said(), "row 0@1=-5v2 to 1") << "it may read on";
}

TEST(Shard, WhoPushesAgainIsBack) {
  ShardRig rig(plan_of("grouped groups=0,1 weighting=none", 2, {1, 1}));
  for (const RowId row : {0u, 1u}) rig.push(1, 0, 4, row), rig.push(0, 0, 2, row);
  (void)rig.said();
  rig.give(1, Retire{1});
  rig.push(0, 1, 2, 1);
  EXPECT_EQ(rig.said(), "row 1@2=-5v2 to 0") << "not waited for";
  rig.push(1, 1, 4);
  EXPECT_EQ(rig.said(), "");
  rig.push(0, 1, 2);
  EXPECT_EQ(rig.said(), "row 0@2=-6v2 to 0, row 0@2=-6v2 to 1") << "waited for again";
  rig.push(0, 2, 2, 1);
  EXPECT_EQ(rig.said(), "") << "in all rows";
  rig.push(1, 1, 4, 1);
  EXPECT_EQ(rig.said(), "row 1@3=-8v3 to 0, row 1@2=-8v3 to 1");
}

TEST(Shard, ALastPushIsOneOfAllWorkers) {
  ShardRig rig(plan_of("async", 2));
  rig.give(1, Retire{1});  // overtook its push of clock 0
  rig.push(1, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=-2v1 to 1") << "half a step";
  rig.push(0, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=-4v2 to 0") << "so is the others'";
}

// Worker 1 is lost before, between and after its pushes of clock 1 to two rows, or after the norm
// was sent.
TEST(Shard, ALossWhileTheNormIsAwaited) {
  const struct {
    int pushes;
    const char* norm;
    const char* row;
  } cases[] = {{0, "norm @1=8", "-2"}, {1, "norm @1=8", "-2"}, {2, "norm @1=32", "-4"}};
  for (const auto& c : cases)
    for (const bool is_last : {false, true}) {
      SCOPED_TRACE(str(c.pushes, " pushes, lost ", is_last ? "after" : "before", " worker 0's"));
      Plan plan = plan_of("bsp", 2, {1, 1});
      plan.clip = 100;
      ShardRig rig(plan);
      for (int worker = 0; worker < 2; ++worker)
        for (RowId row = 0; row < 2; ++row) rig.push(worker, 0, 0, row);
      rig.give(-1, NormTotal{0, 0});
      rig.said();
      for (RowId row = 0; row < static_cast<RowId>(c.pushes); ++row) rig.push(1, 1, 6, row);
      if (!is_last) rig.leave(1);
      for (RowId row = 0; row < 2; ++row) rig.push(0, 1, 2, row);
      if (is_last) rig.leave(1);
      EXPECT_EQ(rig.said(), c.norm);
      rig.give(-1, NormTotal{1, 32});
      EXPECT_EQ(rig.said(), str("row 0@2=", c.row, "v2 to 0, row 1@2=", c.row, "v2 to 0"));
    }
}

// ---- messages lost between shard and coordinator ----

TEST(Shard, ALostNormIsSentAgainWhenSomebodyAsks) {
  Plan plan = plan_of("bsp", 2, {1, 1});
  plan.clip = 1;
  ShardRig rig(plan);
  for (int worker = 0; worker < 2; ++worker)
    for (RowId row = 0; row < 2; ++row) rig.push(worker, 0, 3, row);
  EXPECT_EQ(rig.said(), "norm @0=18");
  rig.give(0, Get{1, 1});
  EXPECT_EQ(rig.said(), "norm @0=18");
  rig.push(1, 0, 3);
  EXPECT_EQ(rig.said(), "norm @0=18");
  rig.give(-1, NormTotal{0, 9});
  EXPECT_EQ(rig.said(),
            "row 0@1=-1v1 to 0, row 0@1=-1v1 to 1, row 1@1=-1v1 to 0, row 1@1=-1v1 to 1");
  rig.give(0, Get{1, 1});
  EXPECT_EQ(rig.said(), "row 1@1=-1v1 to 0");
  EXPECT_EQ(rig.refused(-1, NormTotal{1, 9}),
            "the coordinator sends the norm of clock 1 before this server said its part; it is at "
            "clock 1");
}

TEST(Shard, WhatCameWhileTheNormWasAwaitedIsNext) {
  Plan plan = plan_of("bsp", 1, {1});
  plan.clip = 100;
  ShardRig rig(plan);
  for (Clock clock = 0; clock < 2; ++clock) rig.push(0, clock, 3);
  EXPECT_EQ(rig.said(), "norm @0=9");
  rig.give(-1, NormTotal{0, 9});
  EXPECT_EQ(rig.said(), "norm @1=9");
  rig.give(-1, NormTotal{1, 9});
  EXPECT_EQ(rig.said(), "row 0@2=-6v2 to 0");
}

TEST(Shard, AServerWithoutRowsSpeaksOfTheNormToo) {
  Plan plan = plan_of("bsp", 2, {1});
  plan.servers = 2;
  plan.clip = 1;
  Shard shard(1);
  Outbox out;
  ASSERT_TRUE(shard.handle(0, PlanMessage{plan}, out).ok());
  EXPECT_TRUE(shard.ready());
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(std::get<Ready>(out[0].message).rows, 0u);
  for (Clock clock = 0; clock < 3; ++clock) {
    const auto& norm = std::get<Norm>(out.back().message);
    EXPECT_EQ(norm.clock, clock);
    EXPECT_EQ(norm.squares, 0);
    for (int worker = 0; clock == 2 && worker < 2; ++worker)
      ASSERT_TRUE(shard.handle(worker, Retire{3}, out).ok());
    out.clear();
    ASSERT_TRUE(shard.handle(-1, NormTotal{clock, 4}, out).ok());
  }
  EXPECT_TRUE(out.empty()) << "nobody goes on";
}

// ---- bad input ----

}  // namespace
}  // namespace shoal::table::shard_test
