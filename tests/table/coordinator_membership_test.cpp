// Processes that join a job while it trains, and processes that leave it: the coordinator's rules.
#include <gtest/gtest.h>

#include <algorithm>

#include "shoal/base/bytes.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/scheme.h"
#include "support/coordinator_rig.h"
#include "support/expect.h"
#include "support/schemes.h"

namespace shoal::test::coordinator_membership_test {
namespace {

using table::Clock;
using table::LeaveBody;
using table::RosterBody;
using table::SegmentBody;
using table::Topic;
using table::Want;
using Words = std::vector<std::string>;
using Process = CoordinatorRig::Process;

const std::string kApart(8, '\0');

Status leave(CoordinatorRig& job, std::uint32_t rank, Clock clock, bool at_end,
             const std::string& state = "") {
  return job.ask(rank, Topic::kLeave, clock, table::encode(LeaveBody{at_end, state}));
}

// These say that they are at their ends; the roster that the first of them hears.
RosterBody regroup(CoordinatorRig& job, const std::vector<std::pair<std::uint32_t, Clock>>& ends,
                   Clock generation = 1) {
  std::vector<std::pair<std::uint32_t, SegmentBody>> said;
  for (const auto& [rank, clock] : ends) {
    said.emplace_back().first = rank;
    said.back().second.clock = clock;
  }
  return job.regroup(said, generation);
}

// "0/0 -/- 1/1": workers and servers by rank.
std::string numbers_of(const RosterBody& roster) {
  std::string words;
  const auto number = [](int n) { return n < 0 ? std::string("-") : std::to_string(n); };
  for (const auto& process : roster.processes)
    words += str(words.empty() ? "" : " ", number(process.worker), "/", number(process.server));
  return words;
}

// A bound keeps the workers together: all stop at one clock, and who leaves takes part in that.
TEST(CoordinatorLeave, AtTheClockWhereAllStop) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  ASSERT_TRUE(leave(job, 1, 5, false).ok());
  // said at each iteration until it comes about
  ASSERT_TRUE(leave(job, 1, 6, false).ok());
  EXPECT_EQ(job.take_all(3), std::vector(3, Words{"pause for 4"}));
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    ASSERT_TRUE(job.ask(rank, Topic::kPaused, 5 + rank).ok());
  EXPECT_EQ(job.take_all(3), std::vector(3, Words{"agreed on 4 at 7"}));
  const RosterBody roster = regroup(job, {{0, 7}, {1, 7}, {2, 7}});
  EXPECT_EQ(numbers_of(roster), "0/0 -/- 1/1");
  EXPECT_EQ(roster.why, "rank 1 (host b) leaves");
  EXPECT_EQ(job.take(0), (Words{"left 1", "answer 16 at 1"}));  // nobody takes it for lost
  EXPECT_EQ(job.take(1), Words{"answer 16 at 1"});
  job.lose(1, Code::kPeer, "its connection broke");
  ASSERT_TRUE(job.say(1, table::Ping{9}).ok());
  EXPECT_EQ(job.coordinator.ended(), nullptr);
  job.all_ask({0, 2}, Topic::kBarrier, 9);
  EXPECT_EQ(job.take(2).back(), "answer 2 at 9");  // two are all
}

// Workers apart: who leaves waits for nobody. What it says stands for it until the next generation.
TEST(CoordinatorLeave, AtTheEndOfItsOwnTask) {
  CoordinatorRig job(std::vector<Process>{{}, {}, {.server = false}});
  ASSERT_TRUE(leave(job, 2, 5, true, "its state").ok());
  EXPECT_EQ(job.take(2), Words{"answer 17 at 5"});
  EXPECT_EQ(job.take(0), (Words{"left 2", "pause for 4"}));
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 70, kApart).ok());
  EXPECT_EQ(job.hears(1, job.ask(1, Topic::kPaused, 60, kApart)),
            (Words{"left 2", "pause for 4", "agreed on 4 at 60"}));
  job.all_ask({0, 1}, Topic::kMeet, 1, "\2");
  job.forget();
  job.all_ask({0, 1}, Topic::kGather, 1, "x");
  std::string gathered;
  for (const std::string& part : {std::string("x"), std::string("x"), std::string("its state")})
    put_le(gathered, static_cast<std::uint32_t>(part.size())), gathered += part;
  EXPECT_EQ(body_of(job.told[0].at(0)), gathered);
  EXPECT_EQ(numbers_of(regroup(job, {{0, 70}, {1, 60}})), "0/0 1/1 -/-");
}

// Its rows are there until the next generation has them elsewhere.
TEST(CoordinatorLeave, AServerStaysUntilItsRowsHaveMoved) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  ASSERT_TRUE(leave(job, 1, 5, true).ok());
  EXPECT_EQ(job.take(1), Words{});
  job.all_ask({0, 2}, Topic::kPaused, 7, kApart);
  job.forget();
  EXPECT_EQ(numbers_of(regroup(job, {{0, 7}, {2, 7}})), "0/0 -/- 1/1");
  EXPECT_EQ(job.take(1), Words{"answer 17 at 5"});
  EXPECT_EQ(job.take(2).front(), "left 1");
  // A server alone, in the next.
  CoordinatorRig other(std::vector<Process>{{}, {.worker = false}, {}});
  ASSERT_TRUE(leave(other, 1, 0, false).ok());
  for (const std::uint32_t rank : {0u, 2u}) ASSERT_TRUE(other.ask(rank, Topic::kPaused, 7).ok());
  EXPECT_EQ(numbers_of(regroup(other, {{0, 7}, {2, 7}})), "0/0 -/- 1/1");
  EXPECT_EQ(other.take(1), Words{"answer 17 at 0"});
}

// A process that cannot be spared makes the whole job stop, with a snapshot.
TEST(CoordinatorLeave, WhoCannotBeSparedStopsTheJob) {
  const struct {
    std::vector<Process> processes;
    std::uint32_t rank;
    const char* why;
  } cases[] = {
      {{{}, {}}, 0, "it coordinates the job"},
      {{{.worker = false}, {.server = false}}, 1, "no other worker would train"},
  };
  for (const auto& [processes, rank, why] : cases)
    for (const bool at_end : {true, false}) {
      CoordinatorRig job(processes);
      ASSERT_TRUE(leave(job, rank, 5, at_end).ok());
      const Words told = job.take(rank);
      EXPECT_EQ(std::ranges::count(told, "answer 17 at 5"), at_end ? 1 : 0) << why;
      EXPECT_EQ(told.front(), "pause for 3") << why;
      EXPECT_HAS(job.coordinator.take_warnings().at(0), why);
    }
  // The chief may go, and so may the coordinator if another can take its place.
  CoordinatorRig two = CoordinatorRig::joined(2);
  two.coordinator.coordinates(0, true);
  ASSERT_TRUE(leave(two, 0, 5, false).ok());
  EXPECT_EQ(two.coordinator.take_warnings(), Words{});
  EXPECT_EQ(two.take(1), Words{"pause for 4"});
  // Two of two workers: the second stays.
  CoordinatorRig job(std::vector<Process>{{.worker = false}, {.server = false}, {.server = false}});
  ASSERT_TRUE(leave(job, 1, 0, false).ok());
  ASSERT_TRUE(leave(job, 2, 0, false).ok());
  EXPECT_HAS(job.coordinator.take_warnings().at(0), "rank 2 (host c) is told to leave");
}

// Both servers leave: a worker holds the params then.
TEST(CoordinatorLeave, TheLastServerLeavesItsRowsToAWorker) {
  CoordinatorRig job(std::vector<Process>{{.server = false}, {.worker = false}, {.worker = false}});
  ASSERT_TRUE(leave(job, 1, 0, false).ok());
  ASSERT_TRUE(leave(job, 2, 0, false).ok());
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 7).ok());
  job.forget();
  EXPECT_EQ(numbers_of(regroup(job, {{0, 7}})), "0/0 -/- -/-");
  for (const std::uint32_t rank : {1u, 2u}) EXPECT_EQ(job.take(rank).back(), "answer 17 at 0");
}

// ---- who joins ----

TEST(CoordinatorJoins, InTheNextGenerationWhereTheSlowestIs) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  const std::uint32_t rank = job.coordinator.enroll();
  EXPECT_EQ(rank, 2u);
  EXPECT_EQ(job.coordinator.waiting_for(), "");  // nobody waits for it
  ASSERT_TRUE(job.join(rank, {.server = false}).ok());
  EXPECT_EQ(job.hears(2, job.join(rank, {.server = false})), Words{}) << "its connection broke";
  EXPECT_EQ(job.take(0), Words{"pause for 4"});
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 70, kApart).ok());
  ASSERT_TRUE(job.ask(1, Topic::kPaused, 6, kApart).ok());
  job.all_ask({0, 1}, Topic::kMeet, 1, "\2");
  const RosterBody roster = regroup(job, {{0, 70}, {1, 6}});
  EXPECT_EQ(numbers_of(roster), "0/0 1/1 2/-");
  EXPECT_EQ(roster.processes[2].clock, 6);
  EXPECT_EQ(job.take(2), Words{"answer 1 at 1002"});
  job.all_ask({0, 1, 2}, Topic::kBarrier, 9);
  EXPECT_EQ(job.take(2), Words{"answer 2 at 9"});  // it counts
  job.lose(2, Code::kPeer, "gone");
  EXPECT_NE(job.coordinator.ended(), nullptr);
}

// A job whose processes come without ranks begins when those have joined that it handed out.
TEST(CoordinatorJoins, RanksInTheOrderOfAsking) {
  table::Coordinator coordinator({.processes = 3, .ranks_by_order = true});
  EXPECT_EQ(coordinator.enroll(), 1u);
  EXPECT_EQ(coordinator.enroll(), 2u);
  EXPECT_EQ(coordinator.missing(), (std::vector<table::Rank>{0, 1, 2}));
  EXPECT_EQ(coordinator.enroll(), 3u);  // one too many, or one that joins later
  EXPECT_EQ(coordinator.missing(), (std::vector<table::Rank>{0, 1, 2}));
}

TEST(CoordinatorJoins, WhoHasNotJoinedYetIsNoLoss) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  const std::uint32_t first = job.coordinator.enroll(), second = job.coordinator.enroll();
  job.lose(first, Code::kPeer, "gone");
  ASSERT_TRUE(job.join(second, {}).ok());
  job.lose(second, Code::kPeer, "gone too");
  EXPECT_EQ(job.coordinator.ended(), nullptr);
  job.all_ask({0, 1}, Topic::kPaused, 6);
  job.forget();
  EXPECT_EQ(numbers_of(regroup(job, {{0, 6}, {1, 6}})), "0/0 1/1 -/- -/-");
  const auto abort = table::Directive{
      .kind = table::DirectiveKind::kAbort, .clock = 4, .code = Code::kData, .text = "no data"};
  const std::uint32_t third = job.coordinator.enroll();
  ASSERT_TRUE(job.join(third, {}).ok());
  ASSERT_TRUE(job.say(third, abort).ok());
  EXPECT_EQ(job.coordinator.ended(), nullptr);
}

TEST(CoordinatorJoins, RefusesWhatDoesNotFit) {
  CoordinatorRig job(std::vector<Process>{{.configuration = "base_lr: 0.1\n"}});
  const std::uint32_t rank = job.coordinator.enroll();
  ASSERT_TRUE(job.join(rank, {.configuration = "base_lr: 0.2\n"}).ok());
  const Words told = job.take(rank);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_HAS(told[0], "trains with 'base_lr: 0.2' where rank 0 (host a) has 'base_lr: 0.1'");
  EXPECT_EQ(job.take(0), Words{});
  EXPECT_EQ(job.coordinator.ended(), nullptr);
  ASSERT_TRUE(job.ask(0, Topic::kDone, 9).ok());
  const std::uint32_t late = job.coordinator.enroll();
  ASSERT_TRUE(job.join(late, {.configuration = "base_lr: 0.1\n"}).ok());
  EXPECT_HAS(job.take(late).back(), "the job is done");
}

TEST(CoordinatorJoins, AJobThatEndsFirstSaysSo) {
  CoordinatorRig job = CoordinatorRig::joined(1);
  const std::uint32_t rank = job.coordinator.enroll();
  ASSERT_TRUE(job.join(rank, {}).ok());
  ASSERT_TRUE(job.ask(0, Topic::kDone, 9).ok());
  EXPECT_HAS(job.take(rank).back(), "the job is done: there is nothing left to join");
  EXPECT_TRUE(job.coordinator.finished());
}

// One goes, another comes: one generation. Numbers are given anew, ranks never.
TEST(CoordinatorJoins, AndLeavesAtOnce) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  const std::uint32_t rank = job.coordinator.enroll();
  ASSERT_TRUE(leave(job, 1, 5, false).ok());
  ASSERT_TRUE(job.join(rank, {.server = false}).ok());
  for (std::uint32_t other = 0; other < 3; ++other)
    ASSERT_TRUE(job.ask(other, Topic::kPaused, 5).ok());
  const RosterBody roster = regroup(job, {{0, 5}, {1, 5}, {2, 5}});
  EXPECT_EQ(numbers_of(roster), "0/0 -/- 1/1 2/-");
  EXPECT_EQ(roster.why, "rank 1 (host b) leaves, rank 3 (host d) joins");
}

// An agreement for a later clock includes the new process.
TEST(CoordinatorJoins, HearsWhatWasAgreedOn) {
  CoordinatorRig job = CoordinatorRig::joined(1);
  const std::uint32_t rank = job.coordinator.enroll();
  ASSERT_TRUE(job.join(rank, {}).ok());
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 5).ok());
  ASSERT_TRUE(job.ask(0, Topic::kPause, 5, body_of(Want::kStop)).ok());
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 8).ok());
  (void)regroup(job, {{0, 5}});
  EXPECT_EQ(job.take(rank), (Words{"answer 1 at 1001", "agreed on 2 at 8"}));
}

// ---- schemes that speak of workers ----

TEST(SchemesForOtherWorkers, SayWhatTheyAre) {
  const struct {
    const char* before;
    std::vector<int> workers;
    std::vector<double> seconds;
    const char* after;
  } cases[] = {
      {"bsp", {0, -1}, {0, 0}, "bsp"},
      {"sync_backup backup=2", {0, 1, 3}, {0, 0, 0}, "sync_backup backup=2"},
      {"sync_backup backup=2", {0, 3}, {0, 0}, "sync_backup backup=1"},
      {"sync_backup backup=2", {0}, {0}, "sync_backup backup=0"},
      {"grouped groups=0,2|1,3", {0, 1, 3}, {0, 0, 0}, "grouped groups=0|1,2"},
      {"grouped groups=0,2|1,3", {0, 2}, {0, 0}, "grouped groups=0,1"},
      {"grouped groups=0,1,2|3", {0, 1, 2, 3, -1}, {0, 0, 0, 0, 0}, "grouped groups=0,1,2|3,4"},
      {"grouped groups=0,1,2|3", {0, 1, 2, 3, -1}, {1, 1, 1, 9, 2}, "grouped groups=0,1,2,4|3"},
      {"grouped groups=0,1,2|3", {0, 1, 2, 3, -1}, {1, 1, 1, 9, 4}, "grouped groups=0,1,2|3,4"},
  };
  for (const auto& [before, workers, seconds, after] : cases) {
    const auto scheme = table::make_scheme(before).value()->for_workers(workers, seconds).words();
    EXPECT_EQ(scheme, after) << before;
    EXPECT_EQ(table::make_scheme(scheme).value()->unfit(static_cast<int>(workers.size())), "")
        << scheme;
  }
}

// A phase has the scheme of the workers that the job began with: who came since is in the group
// that fits its speed.
TEST(SchemesForOtherWorkers, ALaterPhaseHasWhoJoinedWhereItsSpeedIs) {
  for (const double seconds : {1.0, 9.0}) {
    CoordinatorRig job = CoordinatorRig::joined(2, "async");
    const std::uint32_t rank = job.coordinator.enroll();
    ASSERT_TRUE(job.join(rank, {.server = false}).ok());
    job.all_ask({0, 1}, Topic::kPaused, 6, kApart);
    job.all_ask({0, 1}, Topic::kMeet, 1, "\2");
    (void)regroup(job, {{0, 6}, {1, 6}});
    const double times[] = {1, 10, seconds};
    for (std::uint32_t each = 0; each < 3; ++each)
      ASSERT_TRUE(job.ask(each, Topic::kReport, 7,
                          table::encode(table::ReportBody{.iterations = 1, .compute = times[each]}))
                      .ok());
    const SegmentBody phase{
        .clock = 8, .phase_end = 8, .next_scheme = table::scheme_of("grouped groups=0|1")};
    for (std::uint32_t each = 0; each < 3; ++each)
      ASSERT_TRUE(job.ask(each, Topic::kRegroup, 2, table::encode(phase)).ok());
    EXPECT_EQ(table::words_of(job.coordinator.roster()->scheme),
              seconds < 5 ? "grouped groups=0,2|1" : "grouped groups=0|1,2");
  }
}

// A pacer goes on: what it knows of those that stay it still knows.
TEST(SchemesForOtherWorkers, APacerOutlivesTheGeneration) {
  CoordinatorRig job = CoordinatorRig::joined(3, "drift_barrier 3");
  ASSERT_TRUE(job.ask(0, Topic::kScheme, 0, "drift_barrier 3").ok());
  for (Clock clock = 0; clock < 3; ++clock) ASSERT_TRUE(job.ask(0, Topic::kBegin, clock).ok());
  ASSERT_TRUE(job.ask(2, Topic::kBegin, 0).ok());
  ASSERT_TRUE(leave(job, 1, 5, true).ok());
  job.all_ask({0, 2}, Topic::kPaused, 7, kApart);
  (void)regroup(job, {{0, 3}, {2, 1}});
  ASSERT_TRUE(job.ask(0, Topic::kScheme, 1, "drift_barrier 3").ok());
  (void)job.take(0);
  ASSERT_TRUE(job.ask(0, Topic::kBegin, 3).ok());
  EXPECT_TRUE(job.take(0).empty()) << "it is as far ahead as it was";
  ASSERT_TRUE(job.ask(2, Topic::kBegin, 1).ok());
  EXPECT_EQ(job.take(0).size(), 1u);
  const SegmentBody phase{
      .clock = 3, .phase_end = 3, .next_scheme = table::scheme_of("drift_barrier 4")};
  job.all_ask({0, 2}, Topic::kRegroup, 2, table::encode(phase));
  ASSERT_TRUE(job.ask(0, Topic::kScheme, 2, "drift_barrier 4").ok());
  for (const Clock clock : {4, 5, 6, 7}) {
    (void)job.take(0);
    ASSERT_TRUE(job.ask(0, Topic::kBegin, clock).ok());
    EXPECT_EQ(job.take(0).size(), 1u) << clock;
  }
  ASSERT_TRUE(job.ask(0, Topic::kBegin, 8).ok());
  EXPECT_TRUE(job.take(0).empty()) << "four tasks ahead of the other";
}

}  // namespace
}  // namespace shoal::test::coordinator_membership_test
