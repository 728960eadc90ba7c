// Tests what the coordinator does when a process is lost, and the others go on.
#include <gtest/gtest.h>

#include "support/coordinator_rig.h"
#include "support/expect.h"

namespace shoal::test::coordinator_losses_test {
namespace {

using table::RosterBody;
using table::SegmentBody;
using table::TolerancesBody;
using table::Topic;
using Words = std::vector<std::string>;
using Process = CoordinatorRig::Process;

constexpr table::LossPolicy kGoesOn{.goes_on = true};

// A job of so many workers and servers that goes on, whose plan bears what `tolerances` says.
struct LosingJob : CoordinatorRig {
  explicit LosingJob(std::size_t processes, const TolerancesBody& tolerances = {.copies = 2},
                     const table::LossPolicy& losses = kGoesOn)
      : LosingJob(std::vector<Process>(processes), tolerances, losses) {}
  LosingJob(const std::vector<Process>& processes, const TolerancesBody& tolerances,
            const table::LossPolicy& losses = kGoesOn)
      : CoordinatorRig(static_cast<std::uint32_t>(processes.size()), 7, "", losses) {
    for (std::uint32_t rank = 0; rank < processes.size(); ++rank)
      EXPECT_TRUE(join(rank, processes[rank]).ok());
    const std::uint32_t chief = processes[0].worker ? 0 : 1;
    EXPECT_TRUE(ask(chief, Topic::kTolerances, 0, table::encode(tolerances)).ok());
    forget();
  }
};

RosterBody regroup(CoordinatorRig& job, const std::vector<std::uint32_t>& ranks, int generation) {
  std::vector<std::pair<std::uint32_t, SegmentBody>> ends;
  for (const std::uint32_t rank : ranks) ends.push_back({rank, {.clock = 8}});
  return job.regroup(ends, generation);
}

std::string members_of(const RosterBody& roster) {
  std::string words;
  for (const auto& process : roster.processes)
    words += str(words.empty() ? "" : " ", process.worker, "/", process.server);
  return words;
}

std::string why_ended(const CoordinatorRig& job) {
  return job.coordinator.ended() ? job.coordinator.ended()->message : "";
}

TEST(CoordinatorLosses, TheOthersAreToldAndTheNextGenerationIsWithoutIt) {
  LosingJob job(3);
  job.lose(1, Code::kPeer, "reset.");
  EXPECT_EQ(job.take(0), (Words{"lost 1: reset.", "pause for 4"}));
  EXPECT_EQ(job.take(2), (Words{"lost 1: reset.", "pause for 4"}));
  EXPECT_EQ(job.take(1), Words{"lost 1: reset."}) << "should it live, it is told";
  job.all_ask({0, 2}, Topic::kPaused, 8);
  const RosterBody roster = regroup(job, {0, 2}, 1);
  EXPECT_EQ(members_of(roster), "0/0 -1/-1 1/1");
  EXPECT_EQ(roster.why, "rank 1 (host b) is lost");
  EXPECT_EQ(why_ended(job), "");
  job.lose(1, Code::kPeer, "said again");  // is old news
  EXPECT_EQ(why_ended(job), "");
}

TEST(CoordinatorLosses, AWorkersReportOfALossIsOne) {
  LosingJob job(3);
  const table::Directive lost{.kind = table::DirectiveKind::kLost, .clock = 2, .text = "silent."};
  ASSERT_TRUE(job.say(1, lost).ok());
  EXPECT_EQ(job.take(0), (Words{"lost 2: silent.", "pause for 4"}));
  ASSERT_TRUE(job.say(0, lost).ok());
  EXPECT_EQ(job.take(0), Words{});
}

// Rounds, meetings and tasks do not wait for it, wherever it was.
TEST(CoordinatorLosses, NothingWaitsForIt) {
  LosingJob job(3);
  job.all_ask({0, 1}, Topic::kSum, 1, numbers({1}));
  job.lose(2, Code::kPeer, "gone");
  EXPECT_EQ(job.take(0).at(1), "answer 3 at 1");
  LosingJob waits(3);
  waits.all_ask({2, 0}, Topic::kSum, 1, numbers({5}));
  waits.lose(2, Code::kPeer, "gone");
  waits.forget();
  ASSERT_TRUE(waits.ask(1, Topic::kSum, 1, numbers({2})).ok());
  const auto& answer = std::get<table::Answer>(waits.told[0].at(0));
  EXPECT_EQ(test::numbers_of(answer.body), std::vector<double>{7}) << "of those that are left";
  LosingJob ends(2);
  ASSERT_TRUE(ends.ask(0, Topic::kDone, 9).ok());
  ends.lose(1, Code::kPeer, "gone");
  EXPECT_TRUE(ends.coordinator.finished()) << "all others are done";
}

TEST(CoordinatorLosses, OneInTheMiddleOfARegroupingIsNotInTheNext) {
  LosingJob job(3);
  job.lose(1, Code::kPeer, "gone");
  job.all_ask({0, 2}, Topic::kPaused, 8);
  job.all_ask({2}, Topic::kRegroup, 1, table::encode(SegmentBody{.clock = 8}));
  job.lose(2, Code::kPeer, "gone too");
  // Rank 2 has the copies of the rows of rank 1.
  EXPECT_HAS(job.coordinator.take_warnings().back(), "were copied on rank 2 (host c), and both");
  LosingJob four(4);
  ASSERT_TRUE(four.ask(0, Topic::kPause, 5, body_of(table::Want::kRegroup)).ok());
  four.all_ask({0, 1, 2, 3}, Topic::kPaused, 8);
  four.all_ask({3}, Topic::kRegroup, 1, table::encode(SegmentBody{.clock = 8}));
  four.lose(3, Code::kPeer, "gone");
  EXPECT_EQ(members_of(regroup(four, {0, 1, 2}, 1)), "0/0 1/1 2/2 -1/-1");
}

// The plan of a generation says which losses it bears.
TEST(CoordinatorLosses, ALossBeforeThePlanIsJudgedByThePlan) {
  for (const bool bears : {true, false}) {
    LosingJob job(3);
    job.lose(2, Code::kPeer, "gone");
    job.all_ask({0, 1}, Topic::kPaused, 8);
    (void)regroup(job, {0, 1}, 1);
    job.lose(1, Code::kPeer, "died at once.");
    EXPECT_EQ(why_ended(job), "");
    const TolerancesBody plan{.copies = static_cast<std::uint8_t>(bears ? 2 : 1)};
    ASSERT_TRUE(job.ask(0, Topic::kTolerances, 1, table::encode(plan)).ok());
    if (bears)
      EXPECT_EQ(why_ended(job), "");
    else
      EXPECT_HAS(why_ended(job), "lost rank 1 (host b): died at once. The job cannot go on");
  }
}

TEST(CoordinatorLosses, WhatCannotBeLostEndsAll) {
  const auto loses = [](LosingJob&& job, std::uint32_t rank) {
    job.lose(rank, Code::kPeer, "gone.");
    return why_ended(job);
  };
  EXPECT_HAS(loses(LosingJob(3), 0), "it coordinates the job");
  EXPECT_EQ(loses(LosingJob(3, {.copies = 1}), 1), "");
  EXPECT_HAS(loses(LosingJob(3, {.servers = false}), 1), "limit the norm of the gradients");
  EXPECT_HAS(loses(LosingJob(3, {.copies = 2, .why_none = "workers sum"}), 1), ": workers sum.");
  EXPECT_EQ(loses(LosingJob(3, {.copies = 2}, {}), 1), "lost rank 1 (host b): gone.");
  using Processes = std::vector<Process>;
  const Processes apart = {{.worker = false}, {}, {.server = false}};
  EXPECT_HAS(loses(LosingJob(apart, TolerancesBody{}), 1), "it is the chief");
  EXPECT_EQ(loses(LosingJob(apart, TolerancesBody{}), 2), "") << "a worker has no rows";
}

TEST(CoordinatorLosses, TooFewWorkersStop) {
  LosingJob job(3, {.copies = 2}, {.goes_on = true, .min_workers = 3});
  job.lose(2, Code::kPeer, "gone");
  EXPECT_EQ(job.take(0).back(), "pause for 3");
  EXPECT_HAS(job.coordinator.take_warnings().back(), "2 workers are left, and min_workers is 3");
}

// A task that the lost one had begun is another's.
TEST(CoordinatorLosses, ItsSharedTaskGoesBack) {
  LosingJob job(2);
  for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(job.begin(rank, 0, 1).ok());
  EXPECT_EQ(job.take(1), Words{"begin 0 with 1 steps"});
  job.lose(1, Code::kPeer, "gone");
  job.forget();
  ASSERT_TRUE(job.begin(0, 1, 1).ok());
  EXPECT_HAS(job.take(0).at(0), "begin 1 with 1 steps");
  ASSERT_TRUE(job.begin(0, 2, 1).ok());
  EXPECT_EQ(job.take(0), Words{"begin 2 over"});
}

}  // namespace
}  // namespace shoal::test::coordinator_losses_test
