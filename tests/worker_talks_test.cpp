// What a worker has heard, between its own calls: an answer is had once, and an agreement comes
// before a task.
#include "shoal/table/worker_talks.h"

#include <gtest/gtest.h>

#include "shoal/table/coordinator.h"

namespace shoal::table::worker_talks_test {
namespace {

TEST(WorkerTalks, AnAnswerIsHadOnceByWhoAskedForIt) {
  WorkerTalks talks;
  talks.answer({Topic::kSum, 3, "three"});
  EXPECT_EQ(std::nullopt, talks.take_answer(Topic::kSum, 2, 0));
  EXPECT_EQ(std::nullopt, talks.take_answer(Topic::kGather, 3, 0));
  EXPECT_EQ("three", talks.take_answer(Topic::kSum, 3, 0));
  EXPECT_EQ(std::nullopt, talks.take_answer(Topic::kSum, 3, 0));
  talks.answer({Topic::kOutputs, 3, "mean"});
  EXPECT_EQ(1u, talks.take_outputs().size());
  EXPECT_EQ(0u, talks.take_outputs().size());
}

TEST(WorkerTalks, ATaskOfAPacedSchemeWaitsForAPauseAndGivesWayToWhatWasAgreedOn) {
  WorkerTalks talks;
  talks.follow(true, false);
  EXPECT_EQ(Want::kNothing, talks.start(4));
  talks.answer({Topic::kBegin, 4, "go"});
  const Ask paused = talks.pause();
  EXPECT_EQ(4, paused.clock)
      << "the task has not begun: start() alone does not begin those of a paced scheme";
  EXPECT_EQ(std::string("\4\0\0\0\0\0\0\0", 8), paused.body) << "no bound";
  EXPECT_EQ(std::nullopt, talks.take_answer(Topic::kBegin, 4, 0));
  EXPECT_EQ(std::nullopt, talks.start(4));
  talks.agreed(4, Want::kSnapshot);
  talks.agreed(4, Want::kStop);
  EXPECT_EQ("", talks.take_answer(Topic::kBegin, 4, 0));
  EXPECT_EQ(Want::kStop, talks.start(4)) << "the more urgent";
  EXPECT_EQ("go", talks.take_answer(Topic::kBegin, 4, 0));
  EXPECT_EQ(5, talks.pause().clock) << "now it has";
}

TEST(WorkerTalks, WithoutAPacerATaskBeginsWithItsStart) {
  WorkerTalks talks;
  EXPECT_EQ(Want::kNothing, talks.start(4));
  EXPECT_EQ(5, talks.pause().clock);
  talks.agreed(7, Want::kStop);
  EXPECT_EQ(Want::kNothing, talks.start(6));
  EXPECT_EQ(Want::kStop, talks.start(7));
  talks.agreed(8, Want::kSnapshot);
  talks.answer({Topic::kMeet, 0, "\0"});
  EXPECT_EQ(Want::kNothing, talks.start(9)) << "it was met for";
  talks.end(2);
  EXPECT_EQ(2, talks.pause().clock);
}

}  // namespace
}  // namespace shoal::table::worker_talks_test
