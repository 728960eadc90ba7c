// The coordinator and tasks: who may start one, what becomes of it, repeats, the tasks of the whole job, loss and end.
#include "shoal/table/coordinator.h"

#include <gtest/gtest.h>

#include "support/job.h"

namespace shoal::test {
namespace {

using table::Answer;
using table::BeginBody;
using table::Clock;
using table::Start;
using table::TaskReport;
using table::Topic;
using table::Verdict;
using Words = std::vector<std::string>;

Status begin(Job& job, std::uint32_t rank, Clock clock, Clock until = 0) {
  return job.ask(rank, Topic::kBegin, clock, table::encode(BeginBody{.last = {}, .until = until}));
}
Status judge(Job& job, std::uint32_t rank, Clock clock, std::uint32_t steps) {
  return job.ask(rank, Topic::kJudge, clock, table::encode(TaskReport{.steps = steps, .seconds = 1}));
}

// What the process was told since the last call: "begin 5 with 1 steps", "begin 5 over", "judge 5: push" ...
Words take(Job& job, std::uint32_t rank) {
  Words words;
  for (auto& message : std::exchange(job.told[rank], {})) {
    const auto* answer = std::get_if<Answer>(&message);
    if (answer && answer->topic == Topic::kBegin) {
      const Start start = table::decode_start(answer->body).value();
      words.push_back(str("begin ", answer->clock, start.over ? " over" : str(" with ", start.steps, " steps"), start.reread ? ", reread" : ""));
    } else if (answer && answer->topic == Topic::kJudge) {
      const char* const names[] = {"push", "drop", "another"};
      words.push_back(str("judge ", answer->clock, ": ", names[static_cast<int>(table::decode_verdict(answer->body).value())]));
    } else {
      Job one(1);
      one.told[0] = {message};
      words.push_back(one.take(0).at(0));
    }
  }
  return words;
}

// ---- without a pacer ----

TEST(CoordinatorPace, WithoutAPacerEveryTaskStartsAndCounts) {
  for (const std::string scheme : {"", "async"}) {
    Job job(2, 7, scheme);
    for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(job.join(rank, {}).ok());
    (void)job.take(0);
    for (Clock clock = 5; clock < 8; ++clock) {
      ASSERT_TRUE(begin(job, 0, clock).ok());
      EXPECT_EQ(take(job, 0), Words{str("begin ", clock, " with 1 steps")});
      ASSERT_TRUE(judge(job, 0, clock, 1).ok());
      EXPECT_EQ(take(job, 0), Words{str("judge ", clock, ": push")});
    }
    EXPECT_EQ(job.coordinator.waiting_for(), "");
    EXPECT_EQ(job.coordinator.describe_pace(), "");
    ASSERT_TRUE(job.ask(0, Topic::kBegin, 8).ok());       // no body says nothing
    EXPECT_EQ(take(job, 0), Words{"begin 8 with 1 steps"});
  }
}

TEST(CoordinatorPace, ARepeatGetsTheAnswerAgainAndAnOldOneNothing) {
  Job job = Job::joined(2);
  for (Clock clock = 0; clock < 2; ++clock) {
    ASSERT_TRUE(begin(job, 0, clock).ok());
    for (const std::uint32_t steps : {1u, 2u}) ASSERT_TRUE(judge(job, 0, clock, steps).ok());
  }
  (void)take(job, 0);
  ASSERT_TRUE(begin(job, 0, 1).ok());
  ASSERT_TRUE(judge(job, 0, 1, 2).ok());
  EXPECT_EQ(take(job, 0), (Words{"begin 1 with 1 steps", "judge 1: push"}));
  ASSERT_TRUE(begin(job, 0, 0).ok());
  ASSERT_TRUE(judge(job, 0, 1, 1).ok());
  ASSERT_TRUE(judge(job, 0, 0, 7).ok());
  EXPECT_EQ(take(job, 0), Words{});
}

// ---- the tasks of the job ----

TEST(CoordinatorPace, TheTasksOfTheJobAreDoneByWhoeverIsFast) {
  Job job = Job::joined(3);
  const Clock first = 10, until = 14;                  // 3 workers, 4 tasks each
  ASSERT_TRUE(begin(job, 1, first, until).ok());
  EXPECT_EQ(take(job, 1), Words{"begin 10 with 1 steps"});
  for (Clock clock = first; clock < first + 10; ++clock) {
    ASSERT_TRUE(begin(job, 0, clock, until).ok());
    EXPECT_EQ(take(job, 0), Words{str("begin ", clock, " with 1 steps")});
  }
  ASSERT_TRUE(begin(job, 2, first, until).ok());
  EXPECT_EQ(take(job, 2), Words{"begin 10 with 1 steps"});
  for (const std::uint32_t rank : {0u, 1u, 2u}) {      // the twelve are begun
    const Clock clock = rank == 0 ? first + 10 : first + 1;
    for (int repeat = 0; repeat < 2; ++repeat) {
      ASSERT_TRUE(begin(job, rank, clock, until).ok());
      EXPECT_EQ(take(job, rank), Words{str("begin ", clock, " over")});
    }
    ASSERT_TRUE(job.ask(rank, Topic::kDone, clock).ok());
  }
  EXPECT_TRUE(job.coordinator.finished());
}

TEST(CoordinatorPace, AWorkerThatIsDoneLeavesItsTasksToOthers) {
  Job job = Job::joined(2);
  ASSERT_TRUE(begin(job, 1, 0, 3).ok());
  ASSERT_TRUE(job.ask(1, Topic::kDone, 1).ok());
  for (Clock clock = 0; clock < 5; ++clock) ASSERT_TRUE(begin(job, 0, clock, 3).ok());
  ASSERT_TRUE(begin(job, 0, 5, 3).ok());
  const Words told = take(job, 0);
  ASSERT_EQ(told.size(), 6u);
  EXPECT_EQ(told[4], "begin 4 with 1 steps");
  EXPECT_EQ(told[5], "begin 5 over");
}

// ---- broken protocol ----

TEST(CoordinatorPace, BrokenProtocol) {
  Job job({{}, {.worker = false}});
  EXPECT_EQ(begin(job, 1, 0).error().message, "rank 1 (host b) is a server alone and asks for begin, which is for workers");
  EXPECT_EQ(job.ask(0, Topic::kBegin, 0, "x").error().message,
            "rank 0 (host a) sends a body of begin: fields that end too early, after 1 bytes");
  EXPECT_EQ(job.ask(0, Topic::kJudge, 0).error().message, "rank 0 (host a) sends a body of judge: fields that end too early, after 0 bytes");
  ASSERT_TRUE(job.ask(0, Topic::kDone, 1).ok());
  EXPECT_EQ(begin(job, 0, 1).error().message, "rank 0 (host a) is done and asks for begin 1");
  EXPECT_EQ(judge(job, 0, 1, 1).error().message, "rank 0 (host a) is done and asks for judge 1");
  std::vector<table::Dispatch> out;
  EXPECT_FALSE(job.coordinator.pace("no such scheme", {}, out).ok());
}

}  // namespace
}  // namespace shoal::test
