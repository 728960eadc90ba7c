// Tests what a worker finds of the coordinator's messages: an answer once, and an agreement before
// a task.
#include "shoal/table/pending_answers.h"

#include <gtest/gtest.h>

#include "shoal/table/coordinator.h"

namespace shoal::table::pending_answers_test {
namespace {

Ask pause(PendingAnswers& pending) {
  return pending.hear(Directive{.kind = DirectiveKind::kPause, .text = {}}).value();
}

void agree(PendingAnswers& pending, Clock clock, Want want) {
  const Directive agreed{.kind = DirectiveKind::kAgreed, .clock = clock, .want = want, .text = {}};
  EXPECT_EQ(std::nullopt, pending.hear(agreed));
}

TEST(PendingAnswers, AnAnswerIsHadOnceByWhoAskedForIt) {
  PendingAnswers pending;
  pending.hear(Answer{Topic::kSum, 3, "three"});
  EXPECT_EQ(std::nullopt, pending.take_answer(Topic::kSum, 2, 0));
  EXPECT_EQ(std::nullopt, pending.take_answer(Topic::kGather, 3, 0));
  EXPECT_EQ("three", pending.take_answer(Topic::kSum, 3, 0));
  EXPECT_EQ(std::nullopt, pending.take_answer(Topic::kSum, 3, 0));
  pending.hear(Answer{Topic::kOutputs, 3, "mean"});
  EXPECT_EQ(1u, pending.take_outputs().size());
  EXPECT_EQ(0u, pending.take_outputs().size());
}

TEST(PendingAnswers, ATaskOfAPacedSchemeWaitsForAPauseAndGivesWayToWhatWasAgreedOn) {
  PendingAnswers pending;
  pending.begin({.first = 0, .paced = true, .bounded = false});
  EXPECT_EQ(Want::kNothing, pending.start(4));
  pending.hear(Answer{Topic::kBegin, 4, "go"});
  const Ask paused = pause(pending);
  EXPECT_EQ(4, paused.clock)
      << "the task has not begun: start() alone does not begin those of a paced scheme";
  EXPECT_EQ(std::string("\4\0\0\0\0\0\0\0", 8), paused.body) << "no bound";
  EXPECT_EQ(std::nullopt, pending.take_answer(Topic::kBegin, 4, 0));
  EXPECT_EQ(std::nullopt, pending.start(4));
  agree(pending, 4, Want::kSnapshot);
  agree(pending, 4, Want::kStop);
  EXPECT_EQ("", pending.take_answer(Topic::kBegin, 4, 0));
  EXPECT_EQ(Want::kStop, pending.start(4)) << "the more urgent";
  EXPECT_EQ("go", pending.take_answer(Topic::kBegin, 4, 0));
  EXPECT_EQ(5, pause(pending).clock) << "now it has";
}

// A worker that a loss has interrupted cannot come to the agreed clock.
TEST(PendingAnswers, AnEndIsTakenWhateverItsClockIs) {
  PendingAnswers pending;
  agree(pending, 7, Want::kSnapshot);
  EXPECT_EQ(std::nullopt, pending.take_end()) << "that ends nothing";
  agree(pending, 8, Want::kRegroup);
  (void)pause(pending);
  EXPECT_EQ(std::nullopt, pending.take_end()) << "something is being agreed on";
  agree(pending, 9, Want::kStop);
  EXPECT_EQ(Want::kRegroup, pending.take_end()) << "the first of them";
  EXPECT_EQ(Want::kNothing, pending.start(8)) << "those before it are forgotten";
  EXPECT_EQ(Want::kStop, pending.start(9)) << "what is for later stays";
}

TEST(PendingAnswers, WithoutAPacerATaskBeginsWithItsStart) {
  PendingAnswers pending;
  EXPECT_EQ(Want::kNothing, pending.start(4));
  EXPECT_EQ(5, pause(pending).clock);
  agree(pending, 7, Want::kStop);
  EXPECT_EQ(Want::kNothing, pending.start(6));
  EXPECT_EQ(Want::kStop, pending.start(7));
  agree(pending, 8, Want::kSnapshot);
  pending.hear(Answer{Topic::kMeet, 0, "\0"});
  EXPECT_EQ(Want::kNothing, pending.start(9)) << "it was met for";
  pending.end(2);
  EXPECT_EQ(2, pause(pending).clock);
}

}  // namespace
}  // namespace shoal::table::pending_answers_test
