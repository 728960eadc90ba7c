// Groups of workers, and the weights of their updates, in small cases worked out by hand, through a
// real shard.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "shoal/table/scheme/weighting.h"
#include "support/schemes.h"
#include "support/shard_rig.h"

namespace shoal::table::scheme_groups_test {
namespace {

using test::plan_of;
using test::push_of;
using test::ShardRig;

// ---- grouped, and the weights of stale updates ----

TEST(SchemeVectors, YIsOnePlusWhatAGroupMissed) {
  const struct {
    std::vector<int> order;
    std::vector<int> y;
  } cases[] = {{{0, 1, 2, 0, 1, 2}, {1, 2, 3, 3, 3, 3}}, {{0, 1, 2, 0, 0, 1}, {1, 2, 3, 3, 1, 4}}};
  for (const char* words : {"grouped groups=0|1|2", "async factor=1 weighting=inverse"})
    for (const auto& c : cases) {
      ShardRig rig(plan_of(words, 3));
      Clock clocks[3] = {};
      float before = 0;
      for (std::size_t i = 0; i < c.order.size(); ++i) {
        rig.push(c.order[i], clocks[c.order[i]]++, -12);
        const float after = rig.first_number();
        EXPECT_NEAR(12 / (after - before), c.y[i], 1e-5) << words << ", update " << i;
        before = after;
        rig.said();
      }
    }
}

TEST(SchemeVectors, YByVersionIsWhatTheReadIsBehind) {
  const Weighting weighting{.function = WeightFunction::kInverse,
                            .definition = StalenessBy::kVersion};
  const struct {
    Version used;
    double y;
  } cases[] = {{7, 1}, {6, 1}, {5, 2}, {3, 4}};
  for (const auto& c : cases) EXPECT_EQ(weighting.weight(7, c.used, 0), 1 / c.y) << c.used;
  ShardRig rig(plan_of("async factor=1 weighting=inverse weighting_definition=version", 2));
  for (Clock clock = 0; clock < 3; ++clock) rig.push(0, clock, 0), rig.said();
  rig.push(1, 0, -12);
  EXPECT_EQ(rig.said(), "row 0@1=4v4 to 1") << "read at 0 and merged at 3";
  rig.push(1, 1, -12);
  EXPECT_EQ(rig.said(), "row 0@2=16v5 to 1") << "nothing was missed";
}

TEST(SchemeVectors, WeightsOfY) {
  using Function = WeightFunction;
  const struct {
    Function function;
    double a;
    Version y;
    double weight;
  } cases[] = {{Function::kNone, 1, 5, 1},
               {Function::kInverse, 1, 1, 1},
               {Function::kInverse, 1, 4, 0.25},
               {Function::kPolynomial, 0.5, 3, 0.5},
               {Function::kPolynomial, 1, 4, 0.25},
               {Function::kExponential, 0.5, 1, 1},
               {Function::kExponential, 0.5, 3, std::exp(-1)},
               {Function::kCutoff, 3, 3, 1},
               {Function::kCutoff, 3, 4, 0}};
  for (const auto& c : cases)
    EXPECT_DOUBLE_EQ(
        (Weighting{.function = c.function, .definition = StalenessBy::kVersion, .a = c.a}.weight(
            c.y, 0, 0)),
        c.weight);
  const Weighting held{.function = Function::kInverse, .floor = 2, .cap = 4};
  EXPECT_EQ(held.weight(0, 0, 0), 1.0 / 2);
  EXPECT_EQ(held.weight(2, 0, 0), 1.0 / 3);
  EXPECT_EQ(held.weight(9, 0, 0), 1.0 / 4);
}

// A cut-off at Y = 2 drops what missed two updates.
TEST(SchemeVectors, ACutOffDrops) {
  ShardRig rig(plan_of("async factor=1 weighting=cutoff weighting_a=2", 2));
  for (Clock clock = 0; clock < 2; ++clock) rig.push(0, clock, 1), rig.said();
  rig.push(1, 0, 100);
  EXPECT_EQ(rig.said(), "row 0@1=-2v2 to 1");
  rig.push(0, 2, 1);
  EXPECT_EQ(rig.said(), "row 0@3=-3v3 to 0");
  EXPECT_EQ(rig.shard().counters().dropped, 1u);
}

TEST(SchemeVectors, GroupsAreInStepAndApart) {
  ShardRig rig(plan_of("grouped groups=0,2|1,3", 4));
  rig.push(2, 0, 2);
  EXPECT_EQ(rig.said(), "");
  rig.push(1, 0, 4);
  EXPECT_EQ(rig.said(), "");
  rig.push(0, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 0, row 0@1=-3v1 to 2")
      << "the members together, others unaffected";
  rig.leave(3);
  EXPECT_EQ(rig.said(), "row 0@1=-5v2 to 1")
      << "4 / (1 * 2): the round of who is left closes at once";
  rig.leave(1);
  rig.push(0, 1, 1);
  rig.push(2, 1, 1);
  EXPECT_NE(rig.said().find("row 0@2=-5.5v3 to 2"), std::string::npos)
      << "an empty group is waited for by nobody";
}

// A step that a member leaves out does not add to the group's staleness.
TEST(SchemeVectors, AGroupKnowsItsLastUpdateByWhoeverWasInIt) {
  ShardRig rig(plan_of("grouped groups=0,1", 2));
  rig.push(0, 0, 6);
  rig.push(1, 0, 100, 0, 0);
  EXPECT_EQ(rig.said(), "row 0@1=-6v1 to 0, row 0@1=-6v1 to 1");
  rig.push(0, 1, 6);
  rig.push(1, 1, 6);
  EXPECT_EQ(rig.said(), "row 0@2=-12v2 to 0, row 0@2=-12v2 to 1");
}

// Group rounds: 0 and 2 may be one ahead of 1.
TEST(SchemeVectors, ABoundHoldsGroupsTogether) {
  ShardRig rig(plan_of("grouped groups=0,2|1 staleness=1 weighting=none", 3));
  const auto round = [&](Clock clock) {
    rig.push(0, clock, 1);
    rig.push(2, clock, 1);
  };
  round(0);
  EXPECT_EQ(rig.said(), "row 0@1=-1v1 to 0, row 0@1=-1v1 to 2");
  round(1);
  EXPECT_EQ(rig.said(), "") << "2 > 0 + 1";
  rig.push(1, 0, 1);
  EXPECT_EQ(rig.said(), "row 0@2=-3v3 to 0, row 0@1=-3v3 to 1, row 0@2=-3v3 to 2");
  round(2);
  EXPECT_EQ(rig.said(), "");
  rig.leave(1);
  EXPECT_EQ(rig.said(), "row 0@3=-4v4 to 0, row 0@3=-4v4 to 2");
}

TEST(SchemeVectors, GroupsMustHoldEveryWorkerOnce) {
  const auto unfit = [](const std::string& words, int workers) {
    return make_scheme(words).value()->unfit(workers);
  };
  EXPECT_EQ(unfit("grouped groups=0,2|1", 3), "");
  EXPECT_EQ(unfit("grouped groups=0,2|1", 4), "worker 3 is in no group");
  EXPECT_EQ(unfit("grouped groups=0,2|1", 2),
            "a group has worker 2, but there are 2 workers, numbered from 0");
  EXPECT_EQ(unfit("sync_backup backup=2", 2),
            "backup is 2, but there are 2 workers; backup must be less");
  EXPECT_EQ(unfit("sync_backup backup=1", 2), "");
  Shard shard(0);
  Outbox out;
  EXPECT_EQ(shard.handle(0, PlanMessage{plan_of("grouped groups=0", 2)}, out).error().message,
            "worker 0's plan: scheme 'grouped groups=0': worker 1 is in no group");
}

// G = 6, |g| = 2, Y = 3, rate 0.1, momentum 0.9, h = 0.2, decay 0.1, w = 1 -> h = 0.29, w = 0.71:
// the decay has no weight. With the rate weighed instead: h = 0.18 + 0.1 / 3 * (3 + 0.1), w = 1 -
// h.
TEST(SchemeVectors, AWeightActsOnTheGradientOrOnTheRate) {
  for (const bool on_rate : {false, true}) {
    Plan plan =
        plan_of(on_rate ? "grouped groups=0,1|2 weighting_on=rate" : "grouped groups=0,1|2", 3);
    plan.rule.momentum = 0.9f;
    plan.weight_decay = 0.1f;
    Shard shard(0);
    Outbox out;
    // so that two updates at rate 0 leave 0.2 and 1
    const float h = 0.2f / 0.81f, w = 1 + h * 0.9f + h * 0.81f;
    ASSERT_TRUE(shard.handle(0, PlanMessage{plan}, out).ok());
    ASSERT_TRUE(shard.handle(0, Init{0, Part::kHistory, as_payload({{&h, 1}, nullptr})}, out).ok());
    ASSERT_TRUE(shard.handle(0, Init{0, Part::kWeights, as_payload({{&w, 1}, nullptr})}, out).ok());
    for (Clock clock = 0; clock < 2; ++clock) {
      Push push = push_of(0, clock, 1);
      push.rate = 0;
      push.base = clock;
      ASSERT_TRUE(shard.handle(2, push, out).ok());
    }
    out.clear();
    for (int worker = 0; worker < 2; ++worker) {
      Push push = push_of(0, 0, worker == 0 ? 2 : 4);
      push.rate = 0.1f;
      ASSERT_TRUE(shard.handle(worker, push, out).ok());
    }
    ASSERT_EQ(out.size(), 2u);
    const float expected = on_rate ? 0.18f + 0.1f / 3 * 3.1f : 0.29f;
    EXPECT_NEAR(std::get<RowMessage>(out[0].message).payload.floats()[0], 1 - expected, 1e-6);
    ASSERT_TRUE(shard.handle(0, Get{0, 1, Part::kHistory}, out).ok());
    EXPECT_NEAR(std::get<RowMessage>(out[2].message).payload.floats()[0], expected, 1e-6);
  }
}

// Weights act before any rule: with Y = 2 a gradient of 8 is one of 4, whoever the solver is.
TEST(SchemeVectors, AWeightWorksWithEveryRule) {
  using optim::Rule;
  for (const Rule rule : {Rule::kSgd, Rule::kNesterov, Rule::kAdaGrad, Rule::kRmsProp,
                          Rule::kAdaDelta, Rule::kAdam}) {
    float ends[2] = {};
    for (const bool weighed : {true, false}) {
      Plan plan = plan_of(weighed ? "async factor=1 weighting=inverse" : "async factor=1", 2);
      plan.rule.rule = rule;
      if (rule != Rule::kAdaGrad && rule != Rule::kRmsProp) plan.rule.momentum = 0.9f;
      plan.rule.delta = 1e-3f;
      ShardRig rig(plan, 1);
      rig.push_at(0.1f, 0, 0, 3);
      rig.said();
      rig.push_at(0.1f, 1, 0, weighed ? 8 : 4);
      ends[weighed] = rig.first_number();
    }
    EXPECT_EQ(ends[0], ends[1]) << optim::name_of(rule);
  }
}

// ---- elastic averaging ----

}  // namespace
}  // namespace shoal::table::scheme_groups_test
