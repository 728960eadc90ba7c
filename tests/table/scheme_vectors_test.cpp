// Results of schemes in small cases worked out by hand, through a real shard: spare workers,
// elastic averaging, deltas, delays.
#include <gtest/gtest.h>

#include <string>

#include "support/schemes.h"
#include "support/shard_rig.h"

namespace shoal::table::scheme_vectors_test {
namespace {

using test::plan_of;
using test::push_of;
using test::ShardRig;

// ---- sync_backup ----

TEST(SchemeVectors, BackupWorkersDoWithoutTheLate) {
  ShardRig rig(plan_of("sync_backup backup=1", 3));
  rig.push_at(0.5f, 0, 0, 1);
  EXPECT_EQ(rig.said(), "");
  rig.push_at(0.5f, 1, 0, 3);
  EXPECT_EQ(rig.said(), "row 0@1=-1v1 to 0, row 0@1=-1v1 to 1");
  rig.push_at(0.5f, 2, 0, 100);
  EXPECT_EQ(rig.said(), "row 0@1=-1v1 to 2") << "dropped, and given the newest";
  rig.push_at(0.5f, 0, 1, 2);
  EXPECT_EQ(rig.said(), "");
  rig.push_at(0.5f, 2, 1, 4);
  EXPECT_EQ(rig.said(), "row 0@2=-2.5v2 to 0, row 0@2=-2.5v2 to 2");
  rig.push_at(0.5f, 1, 1, 7);
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
  EXPECT_FALSE(make_scheme("elastic").value()->task.pull_first);
  ShardRig before(plan_of("elastic moving_rate=0.3 exchange_order=before", 1));
  EXPECT_TRUE(make_scheme("elastic exchange_order=before").value()->task.pull_first);
  before.push(0, 0, 1);
  const float pulled = before.first_number();
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
  EXPECT_EQ(make_scheme("elastic").value()->task.steps, 10);
  EXPECT_EQ(make_scheme("elastic").value()->caution(64), "");
  EXPECT_EQ(make_scheme("elastic moving_rate=0.5").value()->caution(2), "");
  EXPECT_EQ(make_scheme("elastic moving_rate=0.5").value()->caution(3),
            "moving_rate 0.5 times 3 workers is 1.5, above 1: the center overshoots the mean of "
            "the workers");
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
  EXPECT_EQ(make_scheme("ssp 1 payload=delta local_steps=3").value()->task.steps, 3);
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
  rig.push_at(0.1f, 1, 0, -5);  // read what the row is: the same as without
  EXPECT_EQ(rig.said(), "row 0@1=1v1 to 1");
  rig.push_at(0.1f, 0, 0, 2);
  EXPECT_EQ(rig.said(), "row 0@1=0.792v2 to 0");
}

}  // namespace
}  // namespace shoal::table::scheme_vectors_test
