// Tests what the coordinator does when a process is lost, and the others go on.
#include <gtest/gtest.h>

#include "shoal/base/bytes.h"
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

// Returns the bodies in the answer to a reunite: "a,b,".
std::string said_in(const table::Message& answer) {
  std::string words;
  std::string_view rest = std::get<table::Answer>(answer).body;
  while (rest.size() >= 4) {
    const std::size_t length = get_le<std::uint32_t>(rest);
    words += str(rest.substr(4, length), ",");
    rest.remove_prefix(4 + length);
  }
  return words;
}

// No round of before the loss is answered where workers write rows for each other, since
// one worker could act on its answer while another is interrupted in it.
TEST(CoordinatorLosses, InterruptedWorkersReuniteBeforeAnyOtherRound) {
  LosingJob job(3, {.copies = 0, .interrupts = true});
  job.all_ask({0, 1}, Topic::kSum, 1, numbers({1}));
  job.lose(2, Code::kPeer, "gone");
  EXPECT_EQ(job.take(0), (Words{"lost 2: gone", "pause for 4"}));
  // Rank 1 has asked before it heard of the loss.
  job.all_ask({1}, Topic::kSum, 2, numbers({1}));
  job.all_ask({0, 1}, Topic::kPaused, 8);
  job.forget();
  job.all_ask({0}, Topic::kReunite, 1, "a");
  job.all_ask({0}, Topic::kReunite, 2, "x");  // as if after a second loss
  EXPECT_EQ(job.take(0), Words{});
  job.all_ask({1}, Topic::kReunite, 2, "b");
  EXPECT_EQ(said_in(job.told[0].at(0)), "x,b,,");
  EXPECT_EQ(said_in(job.told[1].at(0)), "x,b,,");
  job.forget();
  job.all_ask({0, 1}, Topic::kSum, 1 << 24, numbers({3}));
  EXPECT_EQ(job.take(1).size(), 1u);
  // They end earlier than they have agreed on, and one that joins hears nothing of that.
  ASSERT_EQ(job.coordinator.enroll(), 3u);
  ASSERT_TRUE(job.join(3, {}).ok());
  const RosterBody roster = job.regroup({{0, {.clock = 7}}, {1, {.clock = 7}}}, 1);
  EXPECT_EQ(members_of(roster), "0/0 1/1 -1/-1 2/2");
  EXPECT_EQ(job.take(3).size(), 1u) << "the roster";
  EXPECT_EQ(why_ended(job), "");
}

// A barrier begins a generation, whoever is lost.
TEST(CoordinatorLosses, BarriersAreNotInterrupted) {
  LosingJob job(3, {.copies = 0, .interrupts = true});
  job.all_ask({0}, Topic::kBarrier, 1);
  job.lose(2, Code::kPeer, "gone");
  job.forget();
  job.all_ask({1}, Topic::kBarrier, 1);
  EXPECT_EQ(job.take(0).size(), 1u);
  EXPECT_EQ(job.take(1).size(), 1u);
}

TEST(CoordinatorLosses, OneInTheMiddleOfARegroupingIsNotInTheNext) {
  LosingJob job(3);
  const char* const killed = "Connection refused: nobody listens there.";
  job.lose(1, Code::kPeer, killed);
  job.all_ask({0, 2}, Topic::kPaused, 8);
  job.all_ask({2}, Topic::kRegroup, 1, table::encode(SegmentBody{.clock = 8}));
  job.lose(2, Code::kPeer, killed);
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
    // The chief has the params of a server that was lost before it had them.
    const TolerancesBody plan{.copies = 1, .why_none = bears ? "" : "workers sum"};
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
  EXPECT_EQ(loses(LosingJob(3, {.copies = 1}), 1), "");
  EXPECT_HAS(loses(LosingJob(3, {.copies = 2, .why_none = "workers sum"}), 1), ": workers sum.");
  EXPECT_EQ(loses(LosingJob(3, {.copies = 2}, {}), 1), "lost rank 1 (host b): gone.");
  using Processes = std::vector<Process>;
  const Processes apart = {{.worker = false}, {}, {.server = false}};
  EXPECT_HAS(loses(LosingJob(Processes{{.worker = false}, {.server = false}}, {}), 1),
             "no other worker would train");
  EXPECT_EQ(loses(LosingJob(apart, TolerancesBody{}), 2), "") << "a worker has no rows";
}

// The first worker that is left becomes a server, and stays one when another comes.
TEST(CoordinatorLosses, TheLastServersRoleIsAWorkers) {
  LosingJob job({{.worker = false}, {.server = false}, {.server = false}}, {});
  job.lose(0, Code::kPeer, "gone.");
  EXPECT_EQ(why_ended(job), "");
  EXPECT_HAS(job.coordinator.take_warnings().back(), "its params have no second copy");
  job.all_ask({1, 2}, Topic::kPaused, 8);
  EXPECT_EQ(members_of(regroup(job, {1, 2}, 1)), "-1/-1 0/0 1/-1");
  EXPECT_EQ(job.coordinator.take_warnings().at(0),
            "rank 1 (host b) holds the params from now on: no server is left");
  const std::uint32_t rank = job.coordinator.enroll();
  ASSERT_TRUE(job.join(rank, {.worker = false}).ok());
  job.all_ask({1, 2}, Topic::kPaused, 9);
  EXPECT_EQ(members_of(regroup(job, {1, 2}, 2)), "-1/-1 0/0 1/-1 -1/1");
  // With the server that has just come no worker's role changes.
  LosingJob other({{.worker = false}, {.server = false}, {.server = false}}, {});
  ASSERT_TRUE(other.join(other.coordinator.enroll(), {.worker = false}).ok());
  other.lose(0, Code::kPeer, "gone.");
  other.all_ask({1, 2}, Topic::kPaused, 8);
  EXPECT_EQ(members_of(regroup(other, {1, 2}, 1)), "-1/-1 0/-1 1/-1 -1/0");
}

// Returns the squares of the norms that the process is told, "2=29".
std::string norms_of(CoordinatorRig& job, std::uint32_t rank) {
  std::string words;
  for (const table::Message& message : job.told[rank])
    if (const auto* total = std::get_if<table::NormTotal>(&message))
      words += str(words.empty() ? "" : ", ", total->clock, '=', total->squares);
  job.told[rank].clear();
  return words;
}

// The server with the copies of its rows says its part of the norm; without copies it has none.
TEST(CoordinatorLosses, ANormIsThatOfTheRowsThatAreLeft) {
  for (const std::uint8_t copies : {1, 2}) {
    LosingJob job(3, {.copies = copies});
    for (const std::uint16_t server : {0, 1, 2})
      ASSERT_TRUE(job.say(server, table::Norm{0, server, 1}).ok());
    EXPECT_EQ(norms_of(job, 2), "0=3");
    for (const std::uint16_t server : {0, 2})
      ASSERT_TRUE(job.say(server, table::Norm{1, server, 4}).ok());
    EXPECT_EQ(norms_of(job, 0), "0=3");
    job.lose(1, Code::kPeer, "gone.");
    EXPECT_EQ(why_ended(job), "");
    if (copies == 2) {
      EXPECT_EQ(norms_of(job, 0), "");
      ASSERT_TRUE(job.say(2, table::Norm{0, 1, 1}).ok());  // whose update was not copied
      EXPECT_EQ(norms_of(job, 2), "0=3");
      ASSERT_TRUE(job.say(2, table::Norm{1, 1, 7}).ok());
    }
    for (const std::uint32_t rank : {0u, 2u})
      EXPECT_EQ(norms_of(job, rank), copies == 2 ? "1=15" : "1=8");
    EXPECT_EQ(norms_of(job, 1), "0=3");
    EXPECT_FALSE(job.say(0, table::Norm{2, 1, 1}).ok()) << "it has no copies of these rows";
  }
}

// The server with the copies is lost before it has said what was the lost one's.
TEST(CoordinatorLosses, ANormDoesNotWaitForRowsThatNoServerHas) {
  LosingJob job(4, {.copies = 2});
  for (const std::uint16_t server : {0, 3})
    ASSERT_TRUE(job.say(server, table::Norm{0, server, 4}).ok());
  job.lose(1, Code::kPeer, "Connection refused: nobody listens there.");
  EXPECT_EQ(norms_of(job, 0), "");
  job.lose(2, Code::kPeer, "Connection refused: nobody listens there.");
  EXPECT_EQ(norms_of(job, 0), "") << "the copies of the rows of rank 2 are on rank 3";
  ASSERT_TRUE(job.say(3, table::Norm{0, 2, 1}).ok());
  EXPECT_EQ(norms_of(job, 0), "0=9");
}

// Once the rows exist the next worker speaks for all, and is the next chief.
TEST(CoordinatorLosses, TheChiefIsFollowedByTheNextWorker) {
  LosingJob job(3);
  job.all_ask({0, 1, 2}, Topic::kBarrier, table::rows_exist(0));
  job.all_ask({1}, Topic::kShare, 5);  // it waits for what the chief would share
  job.forget();
  job.lose(0, Code::kPeer, "gone.");
  EXPECT_EQ(why_ended(job), "");
  EXPECT_HAS(job.take(2).at(0), "lost 0: gone.");
  job.all_ask({2}, Topic::kShare, 5);
  EXPECT_EQ(job.take(2).back(), "answer 5 at 5") << "the others need not wait for it";
  job.all_ask({1, 2}, Topic::kPaused, 8);
  job.forget();
  const RosterBody next = job.regroup({{1, {.clock = 8, .weights = {1, 2, 3}}}, {2, {.clock = 8}}});
  EXPECT_EQ(next.processes[0].worker, -1);
  EXPECT_EQ(next.processes[1].worker, 0);
  EXPECT_EQ(next.processes[2].worker, 1);
  EXPECT_EQ(next.processes[2].weight, 3) << "of what rank 1 says in the chief's place";
}

// Workers that have not heard of the loss still ask what began the generation.
TEST(CoordinatorLosses, AGenerationWithoutItsChiefIsFollowedByAnother) {
  LosingJob job(4);
  job.all_ask({0, 1, 2, 3}, Topic::kBarrier, table::rows_exist(0));
  job.lose(0, Code::kPeer, "gone.");
  job.all_ask({1, 2, 3}, Topic::kPaused, 8);
  (void)regroup(job, {1, 2, 3}, 1);
  job.all_ask({2, 3}, Topic::kShare, 1 << 20);
  job.lose(1, Code::kPeer, "gone.");
  EXPECT_EQ(why_ended(job), "");
  job.forget();
  job.all_ask({3, 2}, Topic::kBarrier, table::all_drained(1));
  EXPECT_EQ(job.take(2), Words{});
  EXPECT_EQ(job.take(3), Words{}) << "nothing is answered but what ends the generation";
  job.all_ask({2, 3}, Topic::kPaused, 8);
  const RosterBody roster = regroup(job, {2, 3}, 2);
  EXPECT_EQ(members_of(roster), "-1/-1 -1/-1 0/0 1/1");
  job.forget();
  job.all_ask({2, 3}, Topic::kBarrier, table::all_drained(2));
  EXPECT_EQ(job.take(3).size(), 1u);
  EXPECT_EQ(why_ended(job), "");
}

// A process that has come meanwhile joins once there are params.
TEST(CoordinatorLosses, AJobMayLoseItsChiefBeforeItBegins) {
  LosingJob job(3);
  const std::uint32_t rank = job.coordinator.enroll();
  ASSERT_TRUE(job.join(rank, {}).ok());
  job.all_ask({1, 2}, Topic::kShare, 1);
  job.lose(0, Code::kPeer, "gone.");
  EXPECT_EQ(why_ended(job), "");
  job.all_ask({1, 2}, Topic::kPaused, 0);
  job.forget();
  EXPECT_EQ(members_of(regroup(job, {1, 2}, 1)), "-1/-1 0/0 1/1 -1/-1");
  EXPECT_EQ(job.take(rank), Words{});
  job.all_ask({1, 2}, Topic::kBarrier, table::rows_exist(1), std::string(8, '\0'));
  EXPECT_EQ(job.take(1).back(), "pause for 4");
  job.all_ask({1, 2}, Topic::kPaused, 1);
  EXPECT_EQ(members_of(regroup(job, {1, 2}, 2)), "-1/-1 0/0 1/1 2/2");
  EXPECT_EQ(job.take(rank).size(), 1u) << "the roster";
}

TEST(CoordinatorLosses, NobodyCountsTheCoordinatorOut) {
  LosingJob job(2);
  job.all_ask({0, 1}, Topic::kBarrier, table::rows_exist(0));
  ASSERT_TRUE(job.say(1, table::Directive{.kind = table::DirectiveKind::kLost,
                                          .clock = 0,
                                          .code = Code::kTimeout,
                                          .text = "silent"})
                  .ok());
  EXPECT_EQ(why_ended(job), "");
  EXPECT_EQ(job.coordinator.take_warnings(), Words{});
}

// Silent processes may be alive, and more than these: then they go on, and these end.
TEST(CoordinatorLosses, ASmallerSideOfABrokenNetworkEnds) {
  for (const bool is_proof : {false, true}) {
    LosingJob job(4);
    const std::string why = is_proof ? "Connection refused: nobody listens there." : "silent.";
    job.lose(3, Code::kTimeout, why);
    job.lose(2, Code::kTimeout, why);
    EXPECT_EQ(why_ended(job), "") << "half, with the coordinator";
    job.lose(1, Code::kTimeout, why);
    if (is_proof)
      EXPECT_EQ(why_ended(job), "");
    else
      EXPECT_HAS(why_ended(job), "this side of the network ends");
  }
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
