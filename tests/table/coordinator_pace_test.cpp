// The coordinator and tasks: who may start one, what becomes of it, repeats, the tasks of the whole
// job, loss and end.
#include "shoal/table/coordinator.h"

#include <gtest/gtest.h>

#include "support/coordinator_rig.h"

namespace shoal::test::coordinator_pace_test {
namespace {

using table::Clock;
using table::TaskReport;
using table::Topic;
using Words = std::vector<std::string>;

// ---- without a pacer ----

TEST(CoordinatorPace, WithoutAPacerEveryTaskStartsAndCounts) {
  for (const std::string scheme : {"", "async"}) {
    CoordinatorRig job = CoordinatorRig::joined(2, scheme);
    for (Clock clock = 5; clock < 8; ++clock) {
      EXPECT_EQ(job.hears(0, job.begin(0, clock)), Words{str("begin ", clock, " with 1 steps")});
      EXPECT_EQ(job.hears(0, job.judge(0, clock, 1)), Words{str("judge ", clock, ": push")});
    }
    EXPECT_EQ(job.coordinator.waiting_for(), "");
    EXPECT_EQ(job.hears(0, job.ask(0, Topic::kBegin, 8)), Words{"begin 8 with 1 steps"})
        << "no body says nothing";
  }
}

TEST(CoordinatorPace, ARepeatGetsTheAnswerAgainAndAnOldOneNothing) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  for (Clock clock = 0; clock < 2; ++clock) {
    ASSERT_TRUE(job.begin(0, clock).ok());
    for (const std::uint32_t steps : {1u, 2u}) ASSERT_TRUE(job.judge(0, clock, steps).ok());
  }
  (void)job.take(0);
  ASSERT_TRUE(job.begin(0, 1).ok());
  EXPECT_EQ(job.hears(0, job.judge(0, 1, 2)), (Words{"begin 1 with 1 steps", "judge 1: push"}));
  ASSERT_TRUE(job.begin(0, 0).ok());
  ASSERT_TRUE(job.judge(0, 1, 1).ok());
  EXPECT_EQ(job.hears(0, job.judge(0, 0, 7)), Words{});
}

// ---- with a pacer: a drift barrier, where they wait, and ESync's judge ----

// Workers have begun their first tasks, and worker 1 has done so many that it waits for the others.
struct AtBarrier : CoordinatorRig {
  AtBarrier() : CoordinatorRig(std::vector<Process>(3), "drift_barrier 1") {
    for (const std::uint32_t rank : {0u, 1u, 2u}) EXPECT_TRUE(begin(rank, 5).ok());
    EXPECT_TRUE(begin(1, 6).ok());
    for (const std::uint32_t rank : {0u, 1u, 2u})
      EXPECT_EQ(take(rank), Words{"begin 5 with 1 steps"});
  }
};

TEST(CoordinatorPace, AWorkerWaitsForThoseThatAreNamed) {
  AtBarrier job;
  EXPECT_EQ(job.coordinator.waiting_for(), "begin 6: waiting for rank 0 (host a), rank 2 (host c)");
  EXPECT_EQ(job.hears(1, job.begin(1, 6)), Words{}) << "said again while it waits";
  job.coordinator.heard(2, 5);
  ASSERT_TRUE(job.begin(0, 6).ok());
  EXPECT_EQ(job.coordinator.waiting_for(), "begin 6: waiting for rank 2 (host c, last clock 5)");
  EXPECT_EQ(job.hears(0, job.begin(2, 6)), Words{"begin 6 with 1 steps, reread"});
  EXPECT_EQ(job.take(1), Words{"begin 6 with 1 steps, reread"});
  EXPECT_EQ(job.take(2), Words{"begin 6 with 1 steps"});
  EXPECT_EQ(job.hears(1, job.begin(1, 6)), Words{"begin 6 with 1 steps, reread"});
  EXPECT_EQ(job.coordinator.waiting_for(), "");
}

TEST(CoordinatorPace, WhoIsDoneFreesOthers) {
  AtBarrier job;
  EXPECT_EQ(job.hears(1, job.ask(0, Topic::kDone, 6)), Words{});
  EXPECT_EQ(job.hears(1, job.ask(2, Topic::kDone, 6)), Words{"begin 6 with 1 steps, reread"});
}

TEST(CoordinatorPace, TheLastBarrierTellsAllThatTheTasksAreOver) {
  CoordinatorRig job = CoordinatorRig::joined(2, "drift_barrier 1");  // 2 workers, 1 task each
  for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(job.begin(rank, 0, 1).ok());
  ASSERT_TRUE(job.begin(0, 1, 1).ok());
  (void)job.take(0), (void)job.take(1);
  EXPECT_EQ(job.hears(0, job.begin(1, 1, 1)), Words{"begin 1 over, reread"})
      << "the barrier ends, and so do all";
  EXPECT_EQ(job.take(1), Words{"begin 1 over"});
}

TEST(CoordinatorPace, ALossEndsTheWaitForAll) {
  AtBarrier job;
  job.lose(2, Code::kTimeout, "silent");
  EXPECT_EQ(job.take(1), Words{"abort 8: lost rank 2 (host c): silent"});
  EXPECT_EQ(job.coordinator.waiting_for(), "");
  ASSERT_TRUE(job.begin(0, 6).ok());
  // nothing starts after that
  EXPECT_EQ(job.take(0), Words{"abort 8: lost rank 2 (host c): silent"});
}

TEST(CoordinatorPace, WaitsThatNobodyCanEndEndTheJob) {
  AtBarrier job;
  job.all_ask({0, 2}, Topic::kSum, 6);
  const Words why{
      "abort 6: the workers wait for each other in different places and none can go on: rank 0 "
      "(host a), rank 2 (host c) in sum 6; "
      "rank 1 (host b) in begin 6. Do all run the same program, solver and iterations?"};
  for (const std::uint32_t rank : {0u, 1u}) EXPECT_EQ(job.take(rank), why);
}

// The agreement of all binds rank 1 too: it hears of that while it waits for its task, and
// is on its way.
TEST(CoordinatorPace, WhoWaitsForATaskBeforeWhichAllStopIsNotStuck) {
  CoordinatorRig job = CoordinatorRig::joined(2, "esync");
  for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(job.begin(rank, 0).ok());
  ASSERT_TRUE(job.begin(1, 1).ok());
  for (const table::Want want :
       {table::Want::kSnapshot, table::Want::kStop}) {  // one after another
    job.all_ask({0}, Topic::kPause, 1, body_of(want));
    job.all_ask({0, 1}, Topic::kPaused, 1);
  }
  job.forget();
  EXPECT_EQ(job.hears(0, job.ask(0, Topic::kBarrier, 0)), Words{});
  EXPECT_EQ(job.hears(0, job.ask(1, Topic::kBarrier, 0)), Words{"answer 2 at 0"});
  for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(job.begin(rank, 1).ok());
  EXPECT_EQ(job.take(0), Words{"begin 1 with 1 steps"});
}

TEST(CoordinatorPace, OneQuestionAtATime) {
  AtBarrier job;
  const std::string waits = " while it waits for the start of a task";
  EXPECT_EQ(job.begin(1, 7).error().message,
            "rank 1 (host b) asks for begin 7 while it waits in begin 6; a worker begins one task "
            "at a time");
  EXPECT_EQ(job.judge(1, 6, 1).error().message, "rank 1 (host b) asks for judge 6" + waits);
  EXPECT_EQ(job.ask(1, Topic::kBarrier, 6).error().message,
            "rank 1 (host b) asks for barrier 6" + waits);
  EXPECT_EQ(job.ask(1, Topic::kDone, 6).error().message, "rank 1 (host b) is done" + waits);
  ASSERT_TRUE(job.ask(0, Topic::kBarrier, 6).ok());
  EXPECT_EQ(job.begin(0, 6).error().message,
            "rank 0 (host a) asks for begin 6 while it waits in a round");
}

TEST(CoordinatorPace, TheJudgeIsAskedOncePerQuestion) {
  CoordinatorRig job = CoordinatorRig::joined(1, "esync mode=pull min_steps=3 max_steps=3");
  for (Clock clock = 0; clock < 2; ++clock) {
    EXPECT_EQ(job.hears(0, job.begin(0, clock)), Words{str("begin ", clock, " with 0 steps")});
    for (const std::uint32_t steps : {1u, 2u, 3u})
      for (int repeat = 0; repeat < 2; ++repeat) {
        EXPECT_EQ(job.hears(0, job.judge(0, clock, steps)),
                  Words{str("judge ", clock, steps < 3 ? ": another" : ": push")});
      }
  }
}

TEST(CoordinatorPace, TheTimeComesFromOutside) {
  CoordinatorRig job = CoordinatorRig::joined(2, "esync mode=pull");
  for (Clock clock = 0; clock < 2; ++clock) {
    for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(job.begin(rank, clock).ok());
    const auto judge_at = [&](std::uint32_t rank, std::uint32_t steps, double seconds, double own) {
      job.now = table::Instant(
          static_cast<std::int64_t>((static_cast<double>(clock) * 10 + seconds) * 1e9));
      ASSERT_TRUE(job.ask(rank, Topic::kJudge, clock,
                          table::encode(TaskReport{.steps = steps, .seconds = own}))
                      .ok());
    };
    for (std::uint32_t step = 1; step <= (clock == 0 ? 1u : 3u); ++step)
      judge_at(0, step, 3.0 * step, 3);
    judge_at(1, 1, 10, 10);
  }
  EXPECT_EQ(job.take(0), (Words{"begin 0 with 0 steps", "judge 0: push", "begin 1 with 0 steps",
                                "judge 1: another", "judge 1: another", "judge 1: push"}));
  EXPECT_EQ(job.take(1), (Words{"begin 0 with 0 steps", "judge 0: push", "begin 1 with 0 steps",
                                "judge 1: push"}));
}

TEST(CoordinatorPace, AnotherPhaseHasAnotherPacer) {
  AtBarrier job;
  ASSERT_TRUE(job.ask(0, Topic::kScheme, 1, "esync").ok());
  EXPECT_EQ(job.take(1).size(), 1u);  // the one that waited is asked for anew
  for (const std::uint32_t rank : {0u, 2u}) EXPECT_EQ(job.take(rank), Words{});
  EXPECT_EQ(job.hears(1, job.ask(0, Topic::kScheme, 2, "async")), Words{});
  for (Clock clock = 6; clock < 20; ++clock) ASSERT_TRUE(job.begin(0, clock).ok());
  EXPECT_EQ(job.take(0).size(), 14u);
  AtBarrier waits;
  ASSERT_TRUE(waits.ask(0, Topic::kScheme, 1, "async").ok());
  EXPECT_EQ(waits.take(1).size(), 1u);  // there is no other to wait for
}

// ---- the tasks of the job ----

TEST(CoordinatorPace, TheTasksOfTheJobAreDoneByWhoeverIsFast) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  const Clock first = 10, until = 14;  // 3 workers, 4 tasks each
  for (const std::uint32_t rank : {1u, 2u, 0u}) {
    EXPECT_EQ(job.take(1), Words{}) << "nobody knows yet how many there are";
    ASSERT_TRUE(job.begin(rank, first, until).ok());
  }
  for (const std::uint32_t rank : {0u, 1u, 2u})
    EXPECT_EQ(job.take(rank), Words{"begin 10 with 1 steps as 10"});
  for (Clock clock = first + 1; clock < first + 10; ++clock) {
    ASSERT_TRUE(job.begin(0, clock, until).ok());
    const Clock at = first + (clock - first + 2) / 3;  // a third of those that were begun before
    EXPECT_EQ(job.take(0), Words{str("begin ", clock, " with 1 steps as ", at)});
  }
  for (const std::uint32_t rank : {0u, 1u, 2u}) {  // the twelve are begun
    const Clock clock = rank == 0 ? first + 10 : first + 1;
    for (int repeat = 0; repeat < 2; ++repeat) {
      EXPECT_EQ(job.hears(rank, job.begin(rank, clock, until)),
                Words{str("begin ", clock, " over")});
    }
    ASSERT_TRUE(job.ask(rank, Topic::kDone, clock).ok());
  }
  EXPECT_TRUE(job.coordinator.finished());
}

TEST(CoordinatorPace, AWorkerThatIsDoneLeavesItsTasksToOthers) {
  CoordinatorRig waits = CoordinatorRig::joined(2);
  ASSERT_TRUE(waits.begin(0, 0, 2).ok());
  EXPECT_EQ(waits.hears(0, waits.ask(1, Topic::kDone, 0)), Words{"begin 0 with 1 steps"})
      << "it shares none, and none wait for it";
  EXPECT_EQ(waits.hears(0, waits.begin(0, 1, 2)), Words{"begin 1 with 1 steps as 1"});
  EXPECT_EQ(waits.hears(0, waits.begin(0, 2, 2)), Words{"begin 2 over"});
  CoordinatorRig job = CoordinatorRig::joined(2);
  for (const std::uint32_t rank : {1u, 0u}) ASSERT_TRUE(job.begin(rank, 0, 3).ok());
  ASSERT_TRUE(job.ask(1, Topic::kDone, 1).ok());
  for (Clock clock = 1; clock < 5; ++clock) ASSERT_TRUE(job.begin(0, clock, 3).ok());
  ASSERT_TRUE(job.begin(0, 5, 3).ok());
  const Words told = job.take(0);
  ASSERT_EQ(told.size(), 6u);
  EXPECT_EQ(told[4], "begin 4 with 1 steps as 2");
  EXPECT_EQ(told[5], "begin 5 over");
}

// A job that goes on from where each worker had come to: 2 and 5 of 4 each, so that one task is
// left.
TEST(CoordinatorPace, TasksThatWorkersHadDoneAreNotDoneAgain) {
  for (const std::uint32_t first : {0u, 1u}) {
    CoordinatorRig job = CoordinatorRig::joined(2);
    const Clock done[] = {2, 5};
    EXPECT_EQ(job.hears(first, job.begin(first, done[first], 4)), Words{});
    EXPECT_EQ(job.hears(0, job.begin(1 - first, done[1 - first], 4)),
              Words{"begin 2 with 1 steps as 3"});
    EXPECT_EQ(job.take(1), Words{"begin 5 over"});
    EXPECT_EQ(job.hears(0, job.begin(0, 3, 4)), Words{"begin 3 over"});
  }
}

TEST(CoordinatorPace, ADroppedTaskIsDoneAgain) {
  CoordinatorRig job = CoordinatorRig::joined(2, "weed_out weedout=2 share_iterations=true");
  std::int64_t begun = 0;
  for (const std::uint32_t rank : {0u, 1u}) EXPECT_TRUE(job.begin(rank, 0, 3).ok());
  const auto task = [&](std::uint32_t rank, Clock clock) {
    const bool asked = clock == 0 || job.begin(rank, clock, 3).ok();
    EXPECT_TRUE(asked);
    if (job.take(rank).back().ends_with("over")) return std::string("over");
    ++begun;
    EXPECT_TRUE(job.judge(rank, clock, 1).ok());
    return job.take(rank).back();
  };
  EXPECT_EQ(task(0, 0), "judge 0: push");
  EXPECT_EQ(task(0, 1), "judge 1: push");
  EXPECT_EQ(task(1, 0), "judge 0: drop");  // two others were finished since ever
  for (Clock clock = 2; clock < 6; ++clock)
    EXPECT_EQ(task(0, clock), str("judge ", clock, ": push"));
  EXPECT_EQ(task(0, 6), "over");
  EXPECT_EQ(begun, 7);  // six count
}

// Clocks may begin anew with a phase, and its tasks are others.
TEST(CoordinatorPace, APhaseHasTasksOfItsOwn) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  ASSERT_TRUE(job.begin(1, 0, 2).ok());
  for (Clock clock = 0; clock < 4; ++clock) ASSERT_TRUE(job.begin(0, clock, 2).ok());
  EXPECT_EQ(job.take(0).back(), "begin 3 over");
  ASSERT_TRUE(job.begin(1, 1, 2).ok());
  EXPECT_EQ(job.take(1).back(), "begin 1 over");
  ASSERT_TRUE(job.ask(0, Topic::kScheme, 1, "async share_iterations=true").ok());
  for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(job.begin(rank, 2, 3).ok());
  for (const std::uint32_t rank : {0u, 1u})
    EXPECT_EQ(job.take(rank), Words{"begin 2 with 1 steps as 2"});
}

// ---- broken protocol ----

TEST(CoordinatorPace, BrokenProtocol) {
  CoordinatorRig job({{}, {.worker = false}});
  EXPECT_EQ(job.begin(1, 0).error().message,
            "rank 1 (host b) is a server and no worker, but asks for begin, which is for workers");
  EXPECT_EQ(job.ask(0, Topic::kBegin, 0, "x").error().message,
            "rank 0 (host a) sends a body of begin: too few bytes for its fields, 1");
  EXPECT_EQ(job.ask(0, Topic::kJudge, 0).error().message,
            "rank 0 (host a) sends a body of judge: too few bytes for its fields, 0");
  EXPECT_FALSE(job.ask(0, Topic::kScheme, 1, "no such scheme").ok());
  ASSERT_TRUE(job.ask(0, Topic::kDone, 1).ok());
  EXPECT_EQ(job.begin(0, 1).error().message, "rank 0 (host a) is done and asks for begin 1");
  EXPECT_EQ(job.judge(0, 1, 1).error().message, "rank 0 (host a) is done and asks for judge 1");
}

// Worker 2 is so slow that the others finish four tasks during each of its own.
TEST(CoordinatorPace, ARemarkOfThePacerIsAboutTheWorkerJudged) {
  CoordinatorRig job = CoordinatorRig::joined(3, "weed_out weedout=3");
  for (Clock clock = 0; clock < 10; ++clock) {
    for (const Clock task : {2 * clock, 2 * clock + 1})
      for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(job.judge(rank, task, 1).ok());
    EXPECT_EQ(job.coordinator.take_warnings(), Words{});
    ASSERT_TRUE(job.judge(2, clock, 1).ok());
  }
  const Words warnings = job.coordinator.take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].find("rank 2 (host c) has had its last 10 tasks dropped"), 0u)
      << warnings[0];
}

}  // namespace
}  // namespace shoal::test::coordinator_pace_test
