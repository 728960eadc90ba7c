// One shard, message by message: faults, membership and bad input.
#include "shoal/table/shard.h"

#include <gtest/gtest.h>

#include <limits>
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
  EXPECT_EQ(rig.answers_push(0, 0, 99), "");
  EXPECT_EQ(rig.answers_push(1, 0, 4), "row 0@1=-3v1 to 0, row 0@1=-3v1 to 1");
  EXPECT_EQ(rig.answers_push(0, 0, 2), "row 0@1=-3v1 to 0") << "its answer was lost";
  rig.push(0, 1, 0);
  rig.push(0, 0, 2);  // from before: it has the answer, as it pushed again
  EXPECT_EQ(rig.answers(0, Get{0, 0}), "") << "nor was a read delayed that nobody waits for";
  EXPECT_EQ(rig.answers_push(1, 1, 0), "row 0@2=-3v2 to 0, row 0@2=-3v2 to 1");
  const ShardCounters counters = rig.shard().counters();
  EXPECT_EQ(counters.merges, 2u);
  EXPECT_EQ(counters.contributions, 4u);
  EXPECT_EQ(counters.repeated, 4u);
}

TEST(Shard, AMissingPushIsAskedForAtOnce) {
  ShardRig rig(plan_of("ssp 1", 2));
  EXPECT_EQ(rig.answers(0, Get{0, 1}), "need 0@0 to 0");
  EXPECT_EQ(rig.answers_push(0, 1, 5), "need 0@0 to 0") << "overtook that of clock 0";
  EXPECT_EQ(rig.shard().counters().early, 1u);
  EXPECT_EQ(rig.answers_push(0, 0, 2), "row 0@1=-1v1 to 0");
  EXPECT_EQ(rig.answers(0, Get{0, 2}), "need 0@1 to 0");
  EXPECT_EQ(rig.answers_push(0, 1, 2), "") << "two clocks ahead of worker 1";
  EXPECT_EQ(rig.answers_push(1, 0, 2), "row 0@2=-3v3 to 0, row 0@1=-3v3 to 1");
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
        flight.emplace_back(worker, push_of(row, clock, gradient(worker, clock, row), 0.1f));
        if (random.uniform(0, 1) < 0.3f) flight.emplace_back(worker, Get{row, clock + 1});
      }
    };
    for (int worker = 0; worker < kWorkers; ++worker)
      for (RowId row = 0; row < 2; ++row) fly(worker, 0, row);
    while (!flight.empty()) {
      const std::size_t at = random.below(flight.size());
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
    std::vector<std::vector<float>> last;
    for (const Part part : {Part::kWeights, Part::kHistory})
      for (const RowId row : {0u, 1u}) last.push_back(rig.numbers(row, part));
    if (first.empty()) first = last;
    ASSERT_EQ(first, last);
  }
}

TEST(Shard, LeftOutIterationsMoveNothing) {
  ShardRig rig(plan_of("bsp", 2), 1);
  const Push nothing{.row = 0, .clock = 0, .weight = 0, .rate = 1, .payload = {}};
  rig.give(0, nothing);
  EXPECT_EQ(rig.answers_push(1, 0, 4), "row 0@1=-3v1 to 0, row 0@1=-3v1 to 1")
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
  EXPECT_EQ(rig.answers(1, Get{1, 5}), "row 1@5=3v0 to 1");
  EXPECT_EQ(rig.refused(0, push_of(1, 0, 1)),
            "worker 0's push of row 1 at clock 0 is of a row that does not learn");
}

// ---- membership ----

TEST(Shard, WhatALostWorkerLeftUnfinishedIsDropped) {
  ShardRig rig(plan_of("bsp", 3, {1, 1}));
  rig.all_push(0, 0);
  rig.said();
  rig.push(2, 1, 100, 0);  // of row 0 alone
  EXPECT_EQ(rig.shard().clock_of(2), 1);
  for (int worker = 0; worker < 2; ++worker) rig.push(worker, 1, 2, 1);
  EXPECT_EQ(rig.answers_push(0, 1, 2, 0), "");
  rig.leave(2);
  EXPECT_EQ(rig.said(), "row 1@2=-2v2 to 0, row 1@2=-2v2 to 1");
  EXPECT_EQ(rig.answers_push(1, 1, 2, 0), "row 0@2=-2v2 to 0, row 0@2=-2v2 to 1");
  EXPECT_EQ(rig.shard().counters().dropped, 1u);
  EXPECT_EQ(rig.refused(2, push_of(1, 1, 100)),
            "worker 2 sends a Push, but it was lost and has no part in the job any more");
  rig.leave(2);
  rig.leave(7);
  EXPECT_EQ(rig.said(), "");
}

TEST(Shard, APushThatWasWholeWhenItsWorkerWasLostCounts) {
  ShardRig rig(plan_of("bsp", 2));
  rig.push(1, 0, 4);
  rig.leave(1);
  EXPECT_EQ(rig.answers_push(0, 0, 2), "row 0@1=-3v1 to 0");
  EXPECT_EQ(rig.answers_push(0, 1, 2), "row 0@2=-5v2 to 0");
}

TEST(Shard, ARetiredWorkersPushesOnTheWayAreWaitedFor) {
  ShardRig rig(plan_of("bsp", 2));
  rig.give(1, Retire{1});  // overtook its push of clock 0
  EXPECT_EQ(rig.answers_push(0, 0, 2), "");
  EXPECT_EQ(rig.answers_push(1, 0, 4), "row 0@1=-3v1 to 0, row 0@1=-3v1 to 1");
  EXPECT_EQ(rig.answers_push(0, 1, 2), "row 0@2=-5v2 to 0");
  rig.give(1, Retire{1});
  EXPECT_EQ(rig.answers(1, Get{0, 1}), "row 0@1=-5v2 to 1") << "it may read on";
}

TEST(Shard, WhoPushesAgainIsBack) {
  ShardRig rig(plan_of("grouped groups=0,1 weighting=none", 2, {1, 1}));
  for (const RowId row : {0u, 1u}) rig.push(1, 0, 4, row), rig.push(0, 0, 2, row);
  (void)rig.said();
  rig.give(1, Retire{1});
  EXPECT_EQ(rig.answers_push(0, 1, 2, 1), "row 1@2=-5v2 to 0") << "not waited for";
  EXPECT_EQ(rig.answers_push(1, 1, 4), "");
  EXPECT_EQ(rig.answers_push(0, 1, 2), "row 0@2=-6v2 to 0, row 0@2=-6v2 to 1")
      << "waited for again";
  EXPECT_EQ(rig.answers_push(0, 2, 2, 1), "") << "in all rows";
  EXPECT_EQ(rig.answers_push(1, 1, 4, 1), "row 1@3=-8v3 to 0, row 1@2=-8v3 to 1");
}

TEST(Shard, ALastPushIsOneOfAllWorkers) {
  ShardRig rig(plan_of("async", 2));
  rig.give(1, Retire{1});  // overtook its push of clock 0
  EXPECT_EQ(rig.answers_push(1, 0, 4), "row 0@1=-2v1 to 1") << "half a step";
  EXPECT_EQ(rig.answers_push(0, 0, 4), "row 0@1=-4v2 to 0") << "so is the others'";
}

// Worker 1 is lost before, between and after its pushes of clock 1 to two rows, or after the norm
// was sent.
TEST(Shard, ALossWhileTheNormIsAwaited) {
  const std::tuple<int, const char*, const char*> cases[] = {
      {0, "norm @1=8", "-2"}, {1, "norm @1=8", "-2"}, {2, "norm @1=32", "-4"}};
  for (const auto& [pushes, norm, row_is] : cases)
    for (const bool is_last : {false, true}) {
      SCOPED_TRACE(str(pushes, " pushes, lost ", is_last ? "after" : "before", " worker 0's"));
      Plan plan = plan_of("bsp", 2, {1, 1});
      plan.clip = 100;
      ShardRig rig(plan);
      rig.all_push(0, 0);
      rig.give(-1, NormTotal{0, 0});
      rig.said();
      for (RowId row = 0; row < static_cast<RowId>(pushes); ++row) rig.push(1, 1, 6, row);
      if (!is_last) rig.leave(1);
      for (RowId row = 0; row < 2; ++row) rig.push(0, 1, 2, row);
      if (is_last) rig.leave(1);
      EXPECT_EQ(rig.said(), norm);
      EXPECT_EQ(rig.answers(-1, NormTotal{1, 32}),
                str("row 0@2=", row_is, "v2 to 0, row 1@2=", row_is, "v2 to 0"));
    }
}

// ---- messages lost between shard and coordinator ----

TEST(Shard, ALostNormIsSentAgainWhenSomebodyAsks) {
  Plan plan = plan_of("bsp", 2, {1, 1});
  plan.clip = 1;
  ShardRig rig(plan);
  rig.all_push(0, 3);
  EXPECT_EQ(rig.said(), "norm @0=18");
  EXPECT_EQ(rig.answers(0, Get{1, 1}), "norm @0=18");
  EXPECT_EQ(rig.answers_push(1, 0, 3), "norm @0=18");
  rig.give(-1, NormTotal{0, 9});
  EXPECT_EQ(rig.said(),
            "row 0@1=-1v1 to 0, row 0@1=-1v1 to 1, row 1@1=-1v1 to 0, row 1@1=-1v1 to 1");
  EXPECT_EQ(rig.answers(0, Get{1, 1}), "row 1@1=-1v1 to 0");
  EXPECT_EQ(rig.refused(-1, NormTotal{1, 9}),
            "the coordinator sends the norm of clock 1 before this server sent its own part; it is "
            "at clock 1");
}

TEST(Shard, WhatCameWhileTheNormWasAwaitedIsNext) {
  Plan plan = plan_of("bsp", 1, {1});
  plan.clip = 100;
  ShardRig rig(plan);
  for (Clock clock = 0; clock < 2; ++clock) rig.push(0, clock, 3);
  EXPECT_EQ(rig.said(), "norm @0=9");
  EXPECT_EQ(rig.answers(-1, NormTotal{0, 9}), "norm @1=9");
  EXPECT_EQ(rig.answers(-1, NormTotal{1, 9}), "row 0@2=-6v2 to 0");
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

TEST(Shard, BadInputIsNamed) {
  Plan plan = plan_of("bsp", 2, {2, 2, 2});
  plan.servers = 2;
  plan.start = 5;
  plan.rows.edit()[1].server = 1;
  ShardRig rig(plan, 1);
  const auto push = [](auto change) {
    Push push = push_of(0, 5, 1, 2);
    push.base = 5;
    change(push);
    return push;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  const std::string
      of_row = "push of row 0 at clock 5 ",
      is_at = "push at clock 5 is of row ", elsewhere = "1, which server 1 holds; this is server 0",
      no_number =
          of_row +
          "holds a NaN or an infinity: training diverges; lower base_lr or set clip_gradients";
  // The words stand behind "worker N".
  const std::tuple<int, Message, std::string> cases[] = {
      {0, push([](Push& p) { p.row = 3; }),
       "'s " + is_at + "3, but the plan has 3 rows, numbered from 0"},
      {0, push([](Push& p) { p.row = 1; }), "'s " + is_at + elsewhere},
      {2, push([](Push&) {}), " sends a Push, but there are 2 workers, numbered from 0"},
      {-1, push([](Push&) {}), " sends a Push, but there are 2 workers, numbered from 0"},
      {1, push([](Push& p) { p.payload = push_of(0, 5, 1, 3).payload; }),
       "'s " + of_row + "has 3 numbers; the row has 2"},
      {1, push([](Push& p) { p.payload = {}; }), "'s " + of_row + "has 0 numbers; the row has 2"},
      {1, push([](Push& p) { p.kind = ContributionKind::kDelta; }),
       "'s " + of_row + "holds a delta; scheme 'bsp' takes a gradient"},
      {0, push([](Push& p) { p.clock = 4; }),
       "'s push of row 0 at clock 4 is from before the start, clock 5"},
      {0, push([](Push& p) { p.base = 6; }),
       "'s " + of_row + "is based on version 6; the row has had 5 to 5"},
      {0, push([](Push& p) { p.weight = -1; }),
       "'s " + of_row + "has weight -1; it must be finite, 0 or more"},
      {0, push([&](Push& p) { p.rate = infinity; }),
       "'s " + of_row + "has rate inf; it must be finite"},
      {1, push([&](Push& p) { p.payload = push_of(0, 5, nan, 2).payload; }), "'s " + no_number},
      {1, push([&](Push& p) { p.payload = push_of(0, 5, -infinity, 2).payload; }),
       "'s " + no_number},
      {1, Get{1, 5}, "'s read at clock 5 is of row " + elsewhere},
      {1, Get{0, 4}, "'s read at clock 4 of row 0 is from before the start, clock 5"},
      {1, Get{0, 5, Part::kHistory2},
       "'s read at clock 5 of row 0 wants history 2; the row keeps 1"},
      {1, Init{0, Part::kWeights, {}}, " sends a Init, which only worker 0 may send"},
      {1, PlanMessage{plan}, " sends a Plan, which only worker 0 may send"},
      {0, PlanMessage{plan_of("bsp", 2)}, " sends a second plan, which differs from its first"},
      {0, Init{0, Part::kWeights, {}}, "'s Init of row 0 has 0 numbers; the row has 2"},
      {0, Init{0, Part::kHistory2, {}}, "'s Init of row 0 is of history 2; SGD keeps 1"},
      {1, Retire{4}, " retires at clock 4, before the start, clock 5"},
      {1, Norm{}, " sends a Norm, which is not for servers"},
  };
  for (const auto& [worker, message, words] : cases)
    EXPECT_EQ(rig.refused(worker, message), str("worker ", worker, words));
  EXPECT_EQ(rig.refused(1, NormTotal{}),
            "the coordinator sends the norm of clock 0, but the plan has no clip_gradients");
  EXPECT_EQ(rig.shard().counters().refused, 2u);
  EXPECT_EQ(rig.said(), "");
  for (int worker = 0; worker < 2; ++worker) rig.push(worker, 5, 1);
  EXPECT_EQ(rig.said(), "row 0@6=0v6 to 0, row 0@6=0v6 to 1") << "what was refused changed nothing";
  EXPECT_EQ(rig.refused(1, Retire{5}),
            "worker 1 retires at clock 5, but it pushed row 0 at clock 5");
  rig.give(1, Retire{6});
  EXPECT_EQ(rig.refused(1, Retire{7}),
            "worker 1 retires at clock 7, but it retired at clock 6 already");
}

TEST(Shard, BadPlansAreNamed) {
  Plan nobody = plan_of("bsp", 0), elsewhere = plan_of("bsp", 2), clipped = plan_of("ssp 1", 2);
  elsewhere.rows.edit()[0].server = 1;
  clipped.clip = 3;
  const std::pair<Plan, std::string> cases[] = {
      {nobody, "there are 0 workers; at least one is needed"},
      {elsewhere, "row 0 is on server 1, but there are 1, numbered from 0"},
      {plan_of("ssp -1", 2),
       "scheme 'ssp -1': staleness is -1; it must be a whole number of clocks, 0 or more, or "
       "\"unbounded\""},
      {clipped,
       "clip_gradients needs all workers' gradients at once, but under scheme 'ssp 1' they come "
       "one by one"},
  };
  for (const auto& [plan, words] : cases) {
    Shard shard(0);
    Outbox out;
    const Status status = shard.handle(0, PlanMessage{plan}, out);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "worker 0's plan: " + words);
    EXPECT_EQ(shard.plan(), nullptr);
  }
  Shard shard(3);
  Outbox out;
  EXPECT_EQ(shard.handle(0, PlanMessage{plan_of("bsp", 1)}, out).error().message,
            "worker 0's plan is for 1 servers, numbered from 0, but this is server 3");
  EXPECT_EQ(shard.handle(1, Get{0, 0}, out).error().message,
            "worker 1 sends a Get before worker 0 sent the plan");
}

TEST(Shard, ThePlanAndTheWeightsMayBeSentAgain) {
  const Plan plan = plan_of("bsp", 2);
  ShardRig rig(plan, 2);
  rig.give(0, PlanMessage{plan});
  const float other = 9;
  EXPECT_EQ(rig.answers(0, Init{0, Part::kWeights, as_payload({{&other, 1}})}), "ready 1, ready 1");
  EXPECT_EQ(rig.numbers(0)[0], 2) << "the first count";
}

}  // namespace
}  // namespace shoal::table::shard_test
