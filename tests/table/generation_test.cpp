// One plan after another: what takes the place of what, and that what is late has no effect.
// Histories with faults are in faults_test.cpp, runs of solvers in phases_test.cpp.
#include <gtest/gtest.h>

#include "shoal/table/client.h"
#include "support/coordinator_rig.h"
#include "support/expect.h"
#include "support/schemes.h"
#include "support/shard_rig.h"

namespace shoal::table::generation_test {
namespace {

using test::plan_of;
using test::push_of;
using test::ShardRig;

Plan next_of(const ShardRig& rig, const std::string& scheme, std::uint16_t workers, Clock start) {
  Plan plan = rig.plan();
  plan.scheme = scheme_of(scheme);
  plan.workers = workers;
  plan.start = start;
  plan.generation = rig.plan().generation + 1;
  return plan;
}

Init init_of(float value, Generation generation) {
  static float number;
  number = value;
  return {.row = 0,
          .part = Part::kWeights,
          .payload = as_payload({.data = {&number, 1}}),
          .generation = generation};
}

Push push_in(Generation generation, Clock clock, float value, Version base) {
  Push push = push_of(0, clock, value);
  push.generation = generation;
  push.base = base;
  return push;
}

// Returns what the shard says when it has the plan and its row's number, 8.
std::string begins(ShardRig& rig, const Plan& next) {
  rig.give(0, PlanMessage{next});
  return rig.answers(0, init_of(8, next.generation));
}

TEST(Generations, APlanTakesThePlaceOfTheLast) {
  ShardRig rig(plan_of("bsp", 2), 10);
  rig.push(0, 0, 1);
  EXPECT_EQ(rig.answers_push(1, 0, 3), "row 0@1=8v1 to 0, row 0@1=8v1 to 1");
  rig.give(0, PlanMessage{next_of(rig, "async", 3, 7)});
  EXPECT_FALSE(rig.shard().ready());
  EXPECT_EQ(rig.answers(0, init_of(8, 1)), "ready 1");
  EXPECT_TRUE(rig.shard().ready());
  rig.give(2, Get{.row = 0, .clock = 7, .generation = 1});
  EXPECT_EQ(rig.answers(1, push_in(1, 7, 3, 7)), "row 0@7=8v7 to 2, row 0@8=7v8 to 1");
  EXPECT_EQ(0u, rig.shard().counters().late);
}

// As they do that were apart when somebody joined, who begins where the slowest is.
TEST(Generations, WorkersBeginEachAtItsClock) {
  ShardRig rig(plan_of("async", 2), 10);
  Plan next = next_of(rig, "async", 3, 7);
  next.clocks = {9, 7, 7};
  EXPECT_EQ(begins(rig, next), "ready 1");
  rig.give(0, Get{.row = 0, .clock = 9, .generation = 1});
  EXPECT_EQ(rig.answers(2, Get{.row = 0, .clock = 7, .generation = 1}),
            "row 0@9=8v7 to 0, row 0@7=8v7 to 2");
  rig.give(0, push_in(1, 9, 3, 7));
  EXPECT_EQ(rig.answers(1, push_in(1, 7, 3, 7)), "row 0@10=7v8 to 0, row 0@8=6v9 to 1");
  // before it began: it was merged in a generation before
  EXPECT_EQ(rig.answers(0, push_in(1, 8, 3, 8)), "");
  EXPECT_EQ(1u, rig.shard().counters().repeated);
}

// A server before it has left: its number is another, and its rows are those of the plan.
TEST(Generations, AServerHasTheNumberOfThePlan) {
  ShardRig rig(plan_of("bsp", 1), 10);
  Plan next = next_of(rig, "bsp", 1, 1);
  next.servers = 2;
  next.rows.edit()[0].server = 1;
  rig.shard().renumber(1);
  EXPECT_EQ(begins(rig, next), "ready 1");
}

TEST(Generations, WhatIsLateHasNoEffect) {
  ShardRig rig(plan_of("bsp", 2), 10);
  const Plan first = rig.plan();
  rig.push(0, 0, 1);
  rig.push(1, 0, 3);
  EXPECT_EQ(begins(rig, next_of(rig, "bsp", 1, 1)), "row 0@1=8v1 to 0, row 0@1=8v1 to 1, ready 1");
  const Message late[] = {push_in(0, 0, 5, 0),       push_in(0, 1, 5, 1), Get{0, 1},
                          Get{0, 0, Part::kHistory}, Retire{1},           init_of(99, 0),
                          PlanMessage{first}};
  for (const Message& message : late)
    // of whom the second has no part in this generation
    for (const int worker : {0, 1}) rig.give(worker, message);
  EXPECT_EQ(rig.answers(-1, NormTotal{0, 4}), "");
  EXPECT_EQ(2 * std::size(late) + 1, rig.shard().counters().late);
  EXPECT_EQ(rig.answers(0, push_in(1, 1, 2, 1)), "row 0@2=6v2 to 0")
      << "worker 0 has not retired in this generation, and nothing was added";
}

TEST(Generations, ANextOneBeginsWhenAllIsMerged) {
  ShardRig rig(plan_of("bsp", 2), 10);
  rig.push(0, 0, 1);
  EXPECT_HAS(rig.refused(0, PlanMessage{next_of(rig, "bsp", 2, 1)}),
             "worker 0's push of row 0 at clock 0 is not merged");
  EXPECT_EQ(rig.answers_push(1, 0, 3), "row 0@1=8v1 to 0, row 0@1=8v1 to 1")
      << "nothing was changed by the refusal";
  Plan second = next_of(rig, "bsp", 2, 1), third = second;
  third.generation = 2;
  EXPECT_HAS(rig.refused(1, PlanMessage{second}), "only worker 0 may");
  EXPECT_HAS(rig.refused(1, push_in(1, 1, 1, 1)),
             "of generation 1, and this server is in generation 0");
  rig.give(0, PlanMessage{second});
  EXPECT_EQ(rig.answers(0, PlanMessage{second}), "");
  rig.give(0, init_of(8, 1));
  EXPECT_EQ(rig.answers(0, PlanMessage{second}), "ready 1, ready 1")
      << "a repeat is answered again";
  Plan other = second;
  other.start = 5;
  EXPECT_HAS(rig.refused(0, PlanMessage{other}), "differs from its first");
}

TEST(Generations, AClientPassesOverWhatIsLate) {
  Plan plan = plan_of("bsp", 1);
  plan.generation = 2;
  float number = 0;
  Client client({}, plan, [&](RowId, Part) { return std::span<float>(&number, 1); });
  client.get(0, 0, Part::kWeights, {});
  const std::optional<Message> asked = client.next(0);
  ASSERT_TRUE(asked);
  EXPECT_EQ(2u, std::get<Get>(*asked).generation);
  const float numbers[] = {4};
  RowMessage answer{.row = 0,
                    .clock = 0,
                    .version = 9,
                    .payload = as_payload({.data = numbers}),
                    .generation = 1};
  EXPECT_TRUE(client.place(answer, sizeof numbers).empty());
  EXPECT_FALSE(client.take(0, answer).value());
  answer.row = 77;  // there was such a row once
  EXPECT_FALSE(client.take(0, answer).value());
  EXPECT_FALSE(client.take(0, NeedPush{77, 0, 1}).value());
  EXPECT_FALSE(client.arrived(0));
  answer.row = 0;
  answer.generation = 3;
  EXPECT_FALSE(client.take(0, answer).ok());
  answer.generation = 2;
  EXPECT_TRUE(client.take(0, answer).value());
  EXPECT_EQ(4, number);
  client.push(push_of(0, 0, 1), {});
  EXPECT_EQ(2u, std::get<Push>(*client.next(0)).generation);
}

TEST(Generations, NormsOfOneClockAreOfTheirGeneration) {
  shoal::test::CoordinatorRig job = shoal::test::CoordinatorRig::joined(2);
  ASSERT_TRUE(job.say(0, Norm{5, 0, 1, 0}).ok());
  ASSERT_TRUE(job.say(0, Norm{5, 0, 10, 1}).ok());
  ASSERT_TRUE(job.say(1, Norm{5, 1, 20, 1}).ok());
  const auto total = [&](std::uint32_t rank) { return std::get<NormTotal>(job.told[rank].back()); };
  EXPECT_EQ(30, total(0).squares);
  EXPECT_EQ(1u, total(1).generation);
}

}  // namespace
}  // namespace shoal::table::generation_test
