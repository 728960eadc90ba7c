// Bad input that a shard is given: what it says of each.
#include <gtest/gtest.h>

#include <limits>

#include "shoal/table/shard.h"
#include "support/schemes.h"
#include "support/shard_rig.h"

namespace shoal::table::shard_input_test {
namespace {

using test::plan_of;
using test::push_of;
using test::ShardRig;

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
  const struct {
    int worker;
    Message message;
    const char* words;
  } cases[] = {
      {0, push([](Push& p) { p.row = 3; }),
       "worker 0's push at clock 5 is of row 3; the plan has 3 (the first is 0)"},
      {0, push([](Push& p) { p.row = 1; }),
       "worker 0's push at clock 5 is of row 1, which server 1 holds; this is server 0"},
      {2, push([](Push&) {}), "worker 2 sends a Push, and there are 2 (the first is 0)"},
      {-1, push([](Push&) {}), "worker -1 sends a Push, and there are 2 (the first is 0)"},
      {1, push([](Push& p) { p.payload = push_of(0, 5, 1, 3).payload; }),
       "worker 1's push of row 0 at clock 5 has 3 numbers; the row has 2"},
      {1, push([](Push& p) { p.payload = {}; }),
       "worker 1's push of row 0 at clock 5 has 0 numbers; the row has 2"},
      {1, push([](Push& p) { p.kind = ContributionKind::kDelta; }),
       "worker 1's push of row 0 at clock 5 holds a delta; scheme 'bsp' takes a gradient"},
      {0, push([](Push& p) { p.clock = 4; }),
       "worker 0's push of row 0 at clock 4 is from before the start, clock 5"},
      {0, push([](Push& p) { p.base = 6; }),
       "worker 0's push of row 0 at clock 5 is based on version 6; the row has had 5 to 5"},
      {0, push([](Push& p) { p.weight = -1; }),
       "worker 0's push of row 0 at clock 5 has weight -1; it must be finite, 0 or more"},
      {0, push([&](Push& p) { p.rate = infinity; }),
       "worker 0's push of row 0 at clock 5 has rate inf; it must be finite"},
      {1, push([&](Push& p) { p.payload = push_of(0, 5, nan, 2).payload; }),
       "worker 1's push of row 0 at clock 5 holds a NaN or an infinity: its gradients have grown "
       "beyond all bounds"},
      {1, push([&](Push& p) { p.payload = push_of(0, 5, -infinity, 2).payload; }),
       "worker 1's push of row 0 at clock 5 holds a NaN or an infinity: its gradients have grown "
       "beyond all bounds"},
      {1, Get{1, 5},
       "worker 1's read at clock 5 is of row 1, which server 1 holds; this is server 0"},
      {1, Get{0, 4}, "worker 1's read at clock 4 of row 0 is from before the start, clock 5"},
      {1, Get{0, 5, Part::kHistory2},
       "worker 1's read at clock 5 of row 0 wants history 2; the row keeps 1"},
      {1, Init{0, Part::kWeights, {}}, "worker 1 sends a Init, and only worker 0 may"},
      {1, PlanMessage{plan}, "worker 1 sends a Plan, and only worker 0 may"},
      {0, PlanMessage{plan_of("bsp", 2)},
       "worker 0 sends a second plan, which differs from its first"},
      {0, Init{0, Part::kWeights, {}}, "worker 0's Init of row 0 has 0 numbers; the row has 2"},
      {0, Init{0, Part::kHistory2, {}}, "worker 0's Init of row 0 is of history 2; SGD keeps 1"},
      {1, Retire{4}, "worker 1 retires at clock 4, before the start, clock 5"},
      {1, Norm{}, "worker 1 sends a Norm, which is not for servers"},
      {1, NormTotal{}, "the coordinator sends the norm of clock 0, and nothing is to be clipped"},
  };
  for (const auto& c : cases) EXPECT_EQ(rig.refused(c.worker, c.message), c.words);
  EXPECT_EQ(rig.shard().counters().refused, 2u);
  EXPECT_EQ(rig.said(), "");
  for (int worker = 0; worker < 2; ++worker) rig.push(worker, 5, 1);
  EXPECT_EQ(rig.said(), "row 0@6=0v6 to 0, row 0@6=0v6 to 1") << "what was refused changed nothing";
  EXPECT_EQ(rig.refused(1, Retire{5}),
            "worker 1 retires at clock 5, and has pushed row 0 at clock 5");
  rig.give(1, Retire{6});
  EXPECT_EQ(rig.refused(1, Retire{7}), "worker 1 retires at clock 7, and did so at clock 6");
}

TEST(Shard, BadPlansAreNamed) {
  const auto plan_with = [](auto change) {
    Plan plan = plan_of("bsp", 2);
    change(plan);
    return plan;
  };
  const struct {
    Plan plan;
    const char* words;
  } cases[] = {
      {plan_with([](Plan& p) { p.workers = 0; }),
       "worker 0's plan: there are 0 workers; at least one is needed"},
      {plan_with([](Plan& p) { p.rows.edit()[0].server = 1; }),
       "worker 0's plan: row 0 is on server 1, and there are 1 (the first is 0)"},
      {plan_with([](Plan& p) { p.scheme = scheme_of("ssp -1"); }),
       "worker 0's plan: scheme 'ssp -1': staleness is -1; it must be a whole number of clocks, 0 "
       "or more, or \"unbounded\""},
      {plan_with([](Plan& p) { p.scheme = scheme_of("ssp 1"), p.clip = 3; }),
       "worker 0's plan: a clip of the norm needs all workers' gradients at once, and under scheme "
       "'ssp 1' they come one by one"},
  };
  for (const auto& c : cases) {
    Shard shard(0);
    Outbox out;
    const Status status = shard.handle(0, PlanMessage{c.plan}, out);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, c.words);
    EXPECT_EQ(shard.plan(), nullptr);
  }
  Shard shard(3);
  Outbox out;
  EXPECT_EQ(shard.handle(0, PlanMessage{plan_of("bsp", 1)}, out).error().message,
            "worker 0's plan is for 1 servers, and this is server 3 (the first is 0)");
  EXPECT_EQ(shard.handle(1, Get{0, 0}, out).error().message,
            "worker 1 sends a Get before worker 0 sent the plan");
}

TEST(Shard, ThePlanAndTheWeightsMayBeSentAgain) {
  const Plan plan = plan_of("bsp", 2);
  ShardRig rig(plan, 2);
  rig.give(0, PlanMessage{plan});
  const float other = 9;
  rig.give(0, Init{0, Part::kWeights, as_payload({{&other, 1}})});
  EXPECT_EQ(rig.said(), "ready 1, ready 1");
  EXPECT_EQ(rig.numbers(0)[0], 2) << "the first count";
}

}  // namespace
}  // namespace shoal::table::shard_input_test
