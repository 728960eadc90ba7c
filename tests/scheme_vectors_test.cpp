// Results of each scheme in small cases worked out by hand, through a real shard.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "shoal/table/scheme/weighting.h"
#include "support/shard_rig.h"

namespace shoal::table::scheme_vectors_test {
namespace {

using test::plan_of;
using test::push_of;
using test::ShardRig;

// A push at a rate, read at the version the worker last saw.
void push_at(ShardRig& rig, float rate, int worker, Clock clock, float value) {
  Push push = push_of(0, clock, value);
  push.rate = rate, push.base = rig.base(worker, 0);
  rig.give(worker, push);
}

float first_number(ShardRig& rig) {
  return std::get<RowMessage>(rig.out().at(0).message).payload.floats()[0];
}

// ---- sync_backup ----

TEST(SchemeVectors, BackupWorkersDoWithoutTheLate) {
  ShardRig rig(plan_of("sync_backup backup=1", 3));
  push_at(rig, 0.5f, 0, 0, 1);
  EXPECT_EQ(rig.said(), "");
  push_at(rig, 0.5f, 1, 0, 3);
  EXPECT_EQ(rig.said(), "row 0@1=-1v1 to 0, row 0@1=-1v1 to 1");
  push_at(rig, 0.5f, 2, 0, 100);
  EXPECT_EQ(rig.said(), "row 0@1=-1v1 to 2") << "dropped, and given the newest";
  push_at(rig, 0.5f, 0, 1, 2);
  EXPECT_EQ(rig.said(), "");
  push_at(rig, 0.5f, 2, 1, 4);
  EXPECT_EQ(rig.said(), "row 0@2=-2.5v2 to 0, row 0@2=-2.5v2 to 2");
  push_at(rig, 0.5f, 1, 1, 7);
  EXPECT_EQ(rig.said(), "row 0@2=-2.5v2 to 1") << "stale by then";
  EXPECT_EQ(rig.shard().counters().dropped, 2u);
  EXPECT_EQ(rig.shard().counters().merges, 2u);
}

// backup stays, N shrinks: 4 - 2 = 2, then 3 - 2, then at least 1.
TEST(SchemeVectors, BackupWorkersAreNotWaitedForWhenTheyLeave) {
  ShardRig rig(plan_of("sync_backup backup=2", 4));
  rig.push(0, 0, 3);
  EXPECT_EQ(rig.said(), "");
  rig.leave(3);
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 0") << "one is enough now";
  rig.leave(2);
  rig.push(1, 0, 5);
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 1") << "late";
  rig.give(1, Retire{1});
  rig.push(0, 1, 3);
  EXPECT_EQ(rig.said(), "row 0@2=-6v2 to 0") << "the last one goes on alone";
}

TEST(SchemeVectors, NoBackupIsBsp) {
  for (const char* words : {"bsp", "sync_backup backup=0", "grouped groups=0,1,2"}) {
    ShardRig rig(plan_of(words, 3));
    for (Clock clock = 0; clock < 2; ++clock) {
      rig.push(2, clock, 3, 0, 2);
      rig.push(0, clock, 8, 0, 0);  // left out
      rig.said();
      rig.push(1, clock, 6);
      EXPECT_NE(rig.said().find(clock == 0 ? "row 0@1=-4v1 to 1" : "row 0@2=-8v2 to 1"),
                std::string::npos)
          << words;
    }
  }
}

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
        const float after = first_number(rig);
        EXPECT_NEAR(12 / (after - before), c.y[i], 1e-5) << words << ", update " << i;
        before = after;
        rig.said();
      }
    }
}

TEST(SchemeVectors, YByVersionIsWhatTheReadIsBehind) {
  Weighting weighting{.definition = Weighting::Definition::kVersion};
  const struct {
    Version used;
    double y;
  } cases[] = {{7, 1}, {6, 1}, {5, 2}, {3, 4}};
  for (const auto& c : cases) EXPECT_EQ(weighting.y(7, c.used, 0), c.y) << c.used;
  ShardRig rig(plan_of("async factor=1 weighting=inverse weighting_definition=version", 2));
  for (Clock clock = 0; clock < 3; ++clock) rig.push(0, clock, 0), rig.said();
  rig.push(1, 0, -12);
  EXPECT_EQ(rig.said(), "row 0@1=4v4 to 1") << "read at 0 and merged at 3";
  rig.push(1, 1, -12);
  EXPECT_EQ(rig.said(), "row 0@2=16v5 to 1") << "nothing was missed";
}

TEST(SchemeVectors, WeightsOfY) {
  using Function = Weighting::Function;
  const struct {
    Function function;
    double a;
    double y;
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
    EXPECT_DOUBLE_EQ((Weighting{.function = c.function, .a = c.a}.weight(c.y)), c.weight);
  const Weighting held{.function = Function::kInverse, .floor = 2, .cap = 4};
  EXPECT_EQ(held.y(0, 0, 0), 2);
  EXPECT_EQ(held.y(2, 0, 0), 3);
  EXPECT_EQ(held.y(9, 0, 0), 4);
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
            "worker 2 is in a group, and there are 2 workers (the first is 0)");
  EXPECT_EQ(unfit("sync_backup backup=2", 2),
            "backup is 2 and there are 2 workers; at least one must not be spare");
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
      push_at(rig, 0.1f, 0, 0, 3);
      rig.said();
      push_at(rig, 0.1f, 1, 0, weighed ? 8 : 4);
      ends[weighed] = first_number(rig);
    }
    EXPECT_EQ(ends[0], ends[1]) << optim::name_of(rule);
  }
}

// ---- elastic averaging ----

TEST(SchemeVectors, ElasticAveragingPullsBoth) {
  ShardRig rig(plan_of("elastic moving_rate=0.5", 2));
  rig.push(0, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=2v1 to 0") << "w' - e";
  rig.push(0, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=2v1 to 0") << "repeated: the same answer, nothing merged";
  rig.give(1, Get{0, 0});
  EXPECT_EQ(rig.said(), "row 0@0=2v1 to 1") << "the center";
  rig.push(1, 0, 10);
  EXPECT_EQ(rig.said(), "row 0@1=6v2 to 1");
  EXPECT_EQ(rig.refused(1, push_of(0, 1, 1)),
            "worker 1's push of row 0 at clock 1 holds a gradient; scheme 'elastic "
            "moving_rate=0.5' takes weights");
}

// F = x^2 / 2, x = 1, center 0, rate 0.1: after the step 0.9 is exchanged; before it 1, and the
// step follows.
TEST(SchemeVectors, BothOrdersOfExchange) {
  ShardRig after(plan_of("elastic moving_rate=0.3", 1));
  after.push(0, 0, 0.9f);
  EXPECT_EQ(after.said(), "row 0@1=0.63v1 to 0");
  EXPECT_NEAR(after.numbers(0)[0], 0.63, 1e-6) << "until it pushes again its read is its own";
  EXPECT_FALSE(make_scheme("elastic").value()->task().pull_first);
  ShardRig before(plan_of("elastic moving_rate=0.3 exchange_order=before", 1));
  EXPECT_TRUE(make_scheme("elastic exchange_order=before").value()->task().pull_first);
  before.push(0, 0, 1);
  const float pulled = first_number(before);
  EXPECT_NEAR(pulled - 0.1f * 1, 0.6, 1e-6) << "the gradient is that at 1";
  before.said();
  before.push(0, 1, 0.3f);
  EXPECT_EQ(before.said(), "row 0@2=0.3v2 to 0")
      << "the center, as the first exchange left it, pulls nothing";
}

// alpha = 0.9 / p by default, of the p that the generation has.
TEST(SchemeVectors, TheMovingRateGoesWithTheWorkers) {
  const struct {
    std::uint16_t workers;
    const char* said;
  } cases[] = {{3, "row 0@1=7v1 to 0"}, {2, "row 0@1=5.5v1 to 0"}};
  for (const auto& c : cases) {
    ShardRig rig(plan_of("elastic", c.workers));
    rig.push(0, 0, 10);
    EXPECT_EQ(rig.said(), c.said);
  }
  EXPECT_EQ(make_scheme("elastic").value()->task().steps, 10);
  EXPECT_EQ(make_scheme("elastic").value()->caution(64), "");
  EXPECT_EQ(make_scheme("elastic moving_rate=0.5").value()->caution(2), "");
  EXPECT_EQ(make_scheme("elastic moving_rate=0.5").value()->caution(3),
            "moving_rate 0.5 times 3 workers is 1.5, above 1: the center moves further than to the "
            "workers' mean");
}

// ---- weed_out ----

TEST(SchemeVectors, WeedOutDropsWhatIsTooOld) {
  for (const Version base : {5, 6}) {
    Plan plan = plan_of("weed_out max_version_lag=2 factor=1", 2);
    plan.start = 5;
    ShardRig rig(plan);
    for (Clock clock = 5; clock < 8; ++clock) {
      rig.push(1, clock, 1);
      rig.said();
    }
    Push push = push_of(0, 5, 1);
    push.base = base;  // the row is at version 8
    rig.give(0, push);
    EXPECT_EQ(rig.said(), base == 6 ? "row 0@6=-4v9 to 0" : "row 0@6=-3v8 to 0");
  }
}

// With weights a drop leaves nothing of the worker's own: it goes on from the center.
TEST(SchemeVectors, WeedOutOfWeightsReadsTheCenter) {
  ShardRig rig(plan_of("weed_out max_version_lag=0 payload=weights moving_rate=0.5", 2));
  rig.push(0, 0, 4);
  EXPECT_EQ(rig.said(), "row 0@1=2v1 to 0");
  rig.push(1, 0, 100);
  EXPECT_EQ(rig.said(), "row 0@1=2v1 to 1");
}

// ---- deltas ----

TEST(SchemeVectors, DeltasAreAddedOneByOne) {
  const struct {
    const char* words;
    const char* said[2];
  } cases[] = {
      {"async payload=delta", {"row 0@1=16v1 to 0", "row 0@1=14v2 to 1"}},
      {"async payload=delta factor=2", {"row 0@1=13v1 to 0", "row 0@1=12v2 to 1"}},
      {"async payload=delta factor=0", {"row 0@1=13v1 to 0", "row 0@1=12v2 to 1"}},
      {"async payload=delta weighting=inverse", {"row 0@1=16v1 to 0", "row 0@1=15v2 to 1"}},
      {"ssp 1 payload=delta local_steps=3", {"row 0@1=16v1 to 0", "row 0@1=14v2 to 1"}}};
  for (const auto& c : cases) {
    ShardRig rig(plan_of(c.words, 2), 10);
    rig.push(0, 0, 6);
    EXPECT_EQ(rig.said(), c.said[0]) << c.words;
    rig.push(1, 0, -2);
    EXPECT_EQ(rig.said(), c.said[1]) << c.words;
  }
  EXPECT_EQ(make_scheme("ssp 1 payload=delta local_steps=3").value()->task().steps, 3);
}

TEST(SchemeVectors, MeansOfDeltas) {
  const struct {
    const char* words;
    float weights[2];
    const char* said;
  } cases[] = {
      {"local_steps", {1, 1}, "row 0@1=2v1 to 0, row 0@1=2v1 to 1"},
      {"local_steps global_rate=0.5", {1, 1}, "row 0@1=1v1 to 0, row 0@1=1v1 to 1"},
      {"local_steps", {3, 1}, "row 0@1=1.5v1 to 0, row 0@1=1.5v1 to 1"},
      {"local_steps aggregation=uniform", {3, 1}, "row 0@1=2v1 to 0, row 0@1=2v1 to 1"},
      // Steps 1 and 3, tau 2: each says 2 / its own.
      {"local_steps aggregation=steps", {2, 2.0f / 3}, "row 0@1=2v1 to 0, row 0@1=2v1 to 1"}};
  for (const auto& c : cases) {
    ShardRig rig(plan_of(c.words, 2));
    rig.push(1, 0, 3, 0, c.weights[1]);
    EXPECT_EQ(rig.said(), "");
    rig.push(0, 0, 1, 0, c.weights[0]);
    EXPECT_EQ(rig.said(), c.said) << c.words;
  }
}

// A worker that said it ends, and whose last push comes after that, is one of those it is divided
// by.
TEST(SchemeVectors, TheLastPushCountsItsWorker) {
  const struct {
    const char* words;
    const char* said;
  } cases[] = {{"async", "row 0@1=-3v1 to 0"},
               {"async payload=delta factor=0", "row 0@1=3v1 to 0"},
               {"sync_backup backup=0", ""}};
  for (const auto& c : cases) {
    ShardRig rig(plan_of(c.words, 2));
    rig.give(0, Retire{1});
    rig.push(0, 0, 6);
    EXPECT_EQ(rig.said(), c.said) << c.words;
  }
}

// Or the slow would go on at a higher rate, each step by a smaller batch, when the fast are done.
TEST(SchemeVectors, WhoHasComeToTheEndIsStillOneThatItIsDividedBy) {
  const struct {
    const char* words;
    const char* said;
  } cases[] = {{"async", "row 0@1=-3v2 to 0"},
               {"async payload=delta factor=0", "row 0@1=3v2 to 0"},
               {"elastic", "row 0@1=3.3v2 to 0"}};
  for (const auto& c : cases) {
    ShardRig rig(plan_of(c.words, 2));
    rig.push(1, 0, 0);
    rig.give(1, Retire{1});
    rig.said();
    rig.push(0, 0, 6);
    EXPECT_EQ(rig.said(), c.said) << c.words;
  }
}

// ---- delay compensation ----

TEST(SchemeVectors, DelaysAreCompensated) {
  ShardRig rig(plan_of("dc_asgd factor=1", 2), 0.5f);
  for (int worker = 0; worker < 2; ++worker) rig.give(worker, Get{0, 0});
  EXPECT_EQ(rig.said(), "row 0@0=0.5v0 to 0, row 0@0=0.5v0 to 1");
  push_at(rig, 0.1f, 1, 0, -5);  // read what the row is: the same as without
  EXPECT_EQ(rig.said(), "row 0@1=1v1 to 1");
  push_at(rig, 0.1f, 0, 0, 2);
  EXPECT_EQ(rig.said(), "row 0@1=0.792v2 to 0");
}

}  // namespace
}  // namespace shoal::table::scheme_vectors_test
