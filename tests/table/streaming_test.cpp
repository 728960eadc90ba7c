// Scheme streaming at the table: which pushes make a merge, by hand, with and without a quorum; its
// pacer; and words that make none.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "shoal/table/pacer.h"
#include "support/expect.h"
#include "support/schemes.h"
#include "support/shard_rig.h"

namespace shoal::table::streaming_test {
namespace {

using test::plan_of;
using test::ShardRig;

constexpr const char* kQuorum = "streaming local_steps=4 fragments=2 overlap=1 quorum=2";

// A worker that has pushed hurries the shard: it asks for the row once more.
std::string hurries(ShardRig& rig, int worker, Clock clock, RowId row = 0) {
  return rig.answers(worker, Get{row, clock, Part::kWeights});
}

TEST(Streaming, WithoutAQuorumTheMeanOfAllMovesARow) {
  ShardRig rig(plan_of("streaming local_steps=4 fragments=2 overlap=1 global_rate=0.5", 3, {1, 1}));
  EXPECT_EQ("", rig.answers_push(1, 0, 3));
  EXPECT_EQ("", rig.answers_push(0, 0, 2, 1)) << "rows are merged one by one";
  EXPECT_EQ("", rig.answers_push(2, 0, 6, 0, 2)) << "it counts twice";
  EXPECT_EQ("", hurries(rig, 1, 1)) << "there is nothing to hurry";
  EXPECT_EQ("row 0@1=2.25v1 to 0, row 0@1=2.25v1 to 1, row 0@1=2.25v1 to 2",
            rig.answers_push(0, 0, 3));
  rig.leave(2);
  EXPECT_EQ("", rig.said());
  EXPECT_EQ("row 1@1=1.5v1 to 0, row 1@1=1.5v1 to 1", rig.answers_push(1, 0, 4, 1));
}

TEST(Streaming, AQuorumWaitsUntilAsManyHaveWaited) {
  ShardRig rig(plan_of(kQuorum, 4));
  EXPECT_EQ("", rig.answers_push(0, 0, 2));
  EXPECT_EQ("", hurries(rig, 0, 1)) << "it is alone";
  EXPECT_EQ("", rig.answers_push(1, 0, 4)) << "the grace of the second begins";
  EXPECT_EQ("", hurries(rig, 0, 1)) << "it has hurried before";
  EXPECT_EQ("", rig.answers_push(2, 0, 6)) << "within the grace";
  EXPECT_EQ("row 0@1=4v1 to 0, row 0@1=4v1 to 1, row 0@1=4v1 to 2", hurries(rig, 2, 1));
}

TEST(Streaming, AllAreMoreThanAQuorum) {
  ShardRig rig(plan_of(kQuorum, 3));
  rig.push(2, 0, 1), rig.push(0, 0, 2);
  EXPECT_EQ("", rig.said());
  EXPECT_EQ("row 0@1=2v1 to 0, row 0@1=2v1 to 1, row 0@1=2v1 to 2", rig.answers_push(1, 0, 3));
}

// The late worker gets the row as it is, and what it has done is in the next merge, beside its next
// push if that comes first.
TEST(Streaming, ALatePushIsInTheNextMerge) {
  ShardRig rig(plan_of(kQuorum, 3));
  rig.push(0, 0, 2), rig.push(1, 0, 4);
  hurries(rig, 0, 1);
  EXPECT_EQ("", rig.said());
  EXPECT_EQ("row 0@1=3v1 to 0, row 0@1=3v1 to 1", hurries(rig, 1, 1));
  EXPECT_EQ("row 0@1=3v1 to 2", rig.answers_push(2, 0, 10)) << "at once, without its own";
  EXPECT_EQ(2u, rig.shard().counters().contributions);
  EXPECT_EQ("", rig.answers_push(0, 1, 1));
  EXPECT_EQ("", rig.answers_push(2, 1, 5)) << "two of its pushes are held";
  EXPECT_EQ("row 0@2=8.33333v2 to 0, row 0@2=8.33333v2 to 2", hurries(rig, 0, 2))
      << "3 + (1 + 10 + 5) / 3, of two workers, one of them late";
  EXPECT_EQ(5u, rig.shard().counters().contributions);
  EXPECT_EQ(0u, rig.shard().counters().dropped);
}

TEST(Streaming, ALostWorkerLowersTheQuorumAndItsPushIsForgotten) {
  Plan plan = plan_of("streaming local_steps=4 fragments=2 quorum=3", 3, {1, 1});
  ShardRig rig(plan);
  rig.push(0, 0, 2), rig.push(1, 0, 4), rig.push(2, 0, 9);
  EXPECT_EQ("row 0@1=5v1 to 0, row 0@1=5v1 to 1, row 0@1=5v1 to 2", rig.said());
  rig.push(2, 0, 50, 1), rig.push(2, 1, 60);
  rig.push(0, 0, 1, 1), rig.push(0, 1, 2);
  EXPECT_EQ("", rig.said());
  rig.leave(2);
  EXPECT_EQ(1u, rig.shard().counters().dropped) << "the other row had all its pushes of clock 0";
  EXPECT_EQ("row 1@1=18v1 to 0, row 1@1=18v1 to 1", rig.answers_push(1, 0, 3, 1));
  EXPECT_EQ("row 0@2=8v2 to 0, row 0@2=8v2 to 1", rig.answers_push(1, 1, 4));
}

// v = b v + d; W += r v, or W += r (b v + d).
TEST(Streaming, TheTableKeepsTheMomentum) {
  for (const bool nesterov : {false, true}) {
    Plan plan = plan_of(std::string("streaming local_steps=2 global_rate=0.5 global_momentum=0.8") +
                            (nesterov ? " global_nesterov=true" : ""),
                        2, {1, 1});
    plan.rule = {.rule = nesterov ? optim::Rule::kNesterov : optim::Rule::kSgd, .momentum = 0.8F};
    plan.rows.edit()[1].lr_mult = 0;  // of running means
    ShardRig rig(plan);
    double v = 0, w = 0;
    for (Clock clock = 0; clock < 3; ++clock) {
      for (const int worker : {0, 1})
        for (const RowId row : {0U, 1U}) {
          Push push = test::push_of(row, clock, static_cast<float>(1 + worker));
          push.kind = ContributionKind::kDelta;
          push.base = clock;
          push.rate = 0.5F;
          rig.give(worker, push);
        }
      v = 0.8 * v + 1.5;
      w += 0.5 * (nesterov ? 0.8 * v + 1.5 : v);
      EXPECT_NEAR(w, rig.numbers(0)[0], 1e-5) << clock << nesterov;
      EXPECT_NEAR(1.5 * static_cast<double>(clock + 1), rig.numbers(1)[0], 1e-5) << "means";
    }
  }
}

TEST(Streaming, FasterWorkersMakeMoreSteps) {
  const auto scheme = make_scheme("streaming local_steps=4 match_speeds=true max_steps=30").value();
  EXPECT_TRUE(scheme->task.is_planned());
  const std::unique_ptr<Pacer> pacer = scheme->make_pacer();
  const std::vector<double> seconds = {0.01, 0.03, 0.04, 0.001};
  for (int worker = 0; worker < 4; ++worker) pacer->join(worker, {});
  std::vector<std::uint32_t> steps(4, 0);
  double mean = 0;
  for (Clock clock = 0; clock < 3; ++clock)
    for (int worker = 0; worker < 4; ++worker) {
      const auto w = static_cast<std::size_t>(worker);
      pacer->ready(worker, clock, {.steps = steps[w], .seconds = clock == 0 ? 0 : seconds[w]}, {});
      const std::vector<Start> starts = pacer->take_starts({});
      ASSERT_EQ(1u, starts.size()) << "none waits for another";
      steps[w] = starts[0].steps;
      mean = starts[0].mean_steps;
      if (clock == 0) {
        EXPECT_EQ(4u, steps[w]) << "nothing is known";
      }
    }
  EXPECT_EQ((std::vector<std::uint32_t>{16, 5, 4, 30}), steps);
  EXPECT_EQ((16 + 5 + 4 + 30) / 4.0, mean);
}

TEST(Streaming, WordsThatMakeNoneAreNamed) {
  const struct {
    const char *words, *error;
  } cases[] = {
      {"streaming local_steps=4 fragments=5",
       "fragments is 5, but local_steps is 4: each fragment is exchanged at a step of its own"},
      {"streaming local_steps=8 fragments=2 overlap=4",
       "overlap is 4, but a fragment follows the other after 8/2 steps (local_steps / fragments); "
       "overlap must be less"},
      {"streaming grace=1", "grace is for a quorum, and none is given"},
      {"streaming mix=1", "mix is 1; it must be a number, 0 or more, at most 0.9999"},
      {"streaming max_steps=3", "max_steps needs match_speeds"},
      {"streaming local_steps=4 match_speeds=true max_steps=3",
       "max_steps is 3, below local_steps, which is 4"},
      {"streaming global_nesterov=true", "global_nesterov needs a global_momentum above 0"},
      {"streaming momentum_policy=reset", "streaming has no 'momentum_policy'"},
      {"local_steps overlap=1", "local_steps has no 'overlap'"},
  };
  for (const auto& c : cases) {
    const auto scheme = make_scheme(c.words);
    ASSERT_FALSE(scheme.ok()) << c.words;
    EXPECT_NE(std::string::npos, scheme.error().message.find(c.error)) << scheme.error().message;
  }
  const auto scheme = make_scheme(kQuorum).value();
  EXPECT_EQ("", scheme->unfit(2));
  EXPECT_NE(std::string::npos, scheme->unfit(1).find("quorum is 2, but there are 1 workers"));
  EXPECT_FALSE(scheme->bounded());
  const std::vector<int> left = {0};
  EXPECT_EQ(1, scheme->for_workers(left, {}).quorum);
  EXPECT_TRUE(make_scheme("streaming overlap=2").value()->lockstep);
  EXPECT_EQ(0.5F, make_scheme("streaming overlap=2").value()->task.mix);
  EXPECT_EQ(0.0F, make_scheme("streaming").value()->task.mix);
}

}  // namespace
}  // namespace shoal::table::streaming_test
