// The next generation as the coordinator brings it about: who wants it, where all stop, what it is.
#include <gtest/gtest.h>

#include "shoal/base/bytes.h"
#include "shoal/table/coordinator.h"
#include "support/coordinator_rig.h"
#include "support/schemes.h"

namespace shoal::test::coordinator_regroup_test {
namespace {

using table::Clock;
using table::RosterBody;
using table::SegmentBody;
using table::Topic;
using table::Want;
using Words = std::vector<std::string>;

// All say that they are at their ends, and hear the roster.
RosterBody regrouped(CoordinatorRig& job, const std::vector<SegmentBody>& ends,
                     Clock generation = 1) {
  job.forget();
  for (std::uint32_t rank = 0; rank < ends.size(); ++rank) {
    for (const auto& messages : job.told) EXPECT_TRUE(messages.empty()) << "before rank " << rank;
    EXPECT_TRUE(job.ask(rank, Topic::kRegroup, generation, table::encode(ends[rank])).ok());
  }
  for (std::uint32_t rank = 1; rank < ends.size(); ++rank)
    EXPECT_EQ(body_of(job.told[0].back()), body_of(job.told[rank].back()));
  return table::decode<table::RosterBody>(body_of(job.told[0].back())).value();
}

// A worker wants it, for the nth time.
void want(CoordinatorRig& job, Clock nth = 1) {
  ASSERT_TRUE(job.ask(0, Topic::kPause, nth, body_of(Want::kRegroup)).ok());
}

TEST(CoordinatorRegroup, AllStopAndHearOfTheSameGeneration) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  want(job);
  for (const std::uint32_t rank : {0u, 1u}) EXPECT_EQ(job.take(rank), Words{"pause for 4"});
  ASSERT_TRUE(job.ask(1, Topic::kPause, 1, body_of(Want::kRegroup)).ok());  // it is on its way
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 7).ok());
  ASSERT_TRUE(job.ask(1, Topic::kPaused, 8).ok());
  for (const std::uint32_t rank : {0u, 1u}) EXPECT_EQ(job.take(rank), Words{"agreed on 4 at 8"});
  const RosterBody roster =
      regrouped(job, {{.clock = 8, .scheme = table::scheme_of("ssp 3")}, {.clock = 8}});
  EXPECT_EQ(roster.generation, 1u);
  EXPECT_EQ(table::words_of(roster.scheme), "ssp 3");
  EXPECT_EQ(roster.why, "rank 0 (host a) asks for it, rank 1 (host b) asks for it");
  for (const auto& process : roster.processes) EXPECT_EQ(process.clock, 8);
  want(job, 2);
  EXPECT_EQ(job.take(1).back(), "pause for 4");
}

// A worker that has ended would be in the next generation, and push nothing in it: the others come
// to the end, too, and there is no next generation.
TEST(CoordinatorRegroup, NotBeforeTheEndThatSomebodyHasComeTo) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  ASSERT_TRUE(job.ask(2, Topic::kDone, 60).ok());
  want(job);
  EXPECT_EQ(job.take(2), Words{});
  job.all_ask({0}, Topic::kPaused, 58);
  job.all_ask({1}, Topic::kPaused, 59);
  EXPECT_EQ(job.take(0).back(), "agreed on 4 at 60");
  // Or while they agree on where to stop.
  CoordinatorRig later = CoordinatorRig::joined(3);
  want(later);
  ASSERT_TRUE(later.ask(0, Topic::kPaused, 58).ok());
  ASSERT_TRUE(later.ask(2, Topic::kPaused, 57).ok());
  ASSERT_TRUE(later.ask(1, Topic::kDone, 60).ok());
  EXPECT_EQ(later.take(0).back(), "agreed on 4 at 60");
}

// Workers that no bound keeps together stop each at its own clock, and go on from there.
TEST(CoordinatorRegroup, ApartEachKeepsItsClock) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  ASSERT_TRUE(job.ask(1, Topic::kPause, 5, body_of(Want::kRegroup)).ok());
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 70, std::string(8, '\0')).ok());
  ASSERT_TRUE(job.ask(1, Topic::kPaused, 5, std::string(8, '\0')).ok());
  EXPECT_EQ(job.take(0).back(), "agreed on 4 at 70");
  EXPECT_EQ(job.take(1).back(), "agreed on 4 at 5");
  job.all_ask({0, 1}, Topic::kMeet, 1, std::string(1, '\0'));
  EXPECT_EQ(body_of(job.told[1].back()), body_of(Want::kRegroup));
  const RosterBody roster = regrouped(job, {{.clock = 70}, {.clock = 5}});
  EXPECT_EQ(roster.processes[0].clock, 70);
  EXPECT_EQ(roster.processes[1].clock, 5);
  EXPECT_EQ(roster.why, "rank 1 (host b) asks for it");
}

TEST(CoordinatorRegroup, ApartThoseInStepStopAfterAsManyIterations) {
  CoordinatorRig job = CoordinatorRig::joined(3, "grouped groups=0,1|2");
  ASSERT_TRUE(job.ask(0, Topic::kPause, 4, body_of(Want::kSnapshot)).ok());
  const auto paused = [&](std::uint32_t rank, Clock clock, Clock done) {
    std::string body;
    put_le(body, done);
    return job.ask(rank, Topic::kPaused, clock, body).ok();
  };
  // rank 1 began at 31, and waits at the end of its fourth iteration for rank 0's
  ASSERT_TRUE(paused(0, 4, 3) && paused(1, 35, 4) && paused(2, 9, 9));
  EXPECT_EQ(job.take(0).back(), "agreed on 1 at 5");
  EXPECT_EQ(job.take(1).back(), "agreed on 1 at 35");
  EXPECT_EQ(job.take(2).back(), "agreed on 1 at 9");
}

// The next phase begins when the last worker has come to the end of this one; what was wanted of
// this one is void then.
TEST(CoordinatorRegroup, APhaseThatEndsBringsItsOwnScheme) {
  for (const Clock slowest : {9, 10}) {
    CoordinatorRig job = CoordinatorRig::joined(2, "async");
    want(job);
    job.all_ask({0, 1}, Topic::kPaused, 9, std::string(8, '\0'));
    const RosterBody roster = regrouped(
        job, {{.clock = 10, .phase_end = 10, .next_scheme = table::SchemeSpec()},
              {.clock = slowest, .phase_end = 10, .next_scheme = table::SchemeSpec{.name = "?"}}});
    EXPECT_EQ(table::words_of(roster.scheme), slowest == 10 ? "bsp" : "async");
  }
}

// An end comes first, and there is no next generation; a snapshot comes after it.
TEST(CoordinatorRegroup, AgainstOtherWants) {
  for (const Want other : {Want::kSnapshot, Want::kStop, Want::kRequeue})
    for (const bool first : {true, false}) {
      CoordinatorRig job = CoordinatorRig::joined(2);
      ASSERT_TRUE(!first || job.ask(1, Topic::kPause, 5, body_of(other)).ok());
      want(job);
      ASSERT_TRUE(first || job.ask(1, Topic::kPause, 5, body_of(other)).ok());
      job.all_ask({0, 1}, Topic::kPaused, 6);
      const Want agreed = other == Want::kSnapshot ? Want::kRegroup : other;
      EXPECT_EQ(job.take(0).back(), str("agreed on ", static_cast<int>(agreed), " at 6"));
      if (other != Want::kSnapshot) continue;
      (void)regrouped(job, {{.clock = 6}, {.clock = 6}});
      EXPECT_EQ(job.take(0), (Words{"pause for 1", "answer 16 at 1"}));
    }
}

// While it is not agreed on where all pause nobody goes on from the end of a phase, where that may
// be.
TEST(CoordinatorRegroup, WaitsForAnAgreement) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  ASSERT_TRUE(job.ask(0, Topic::kPause, 5, body_of(Want::kSnapshot)).ok());
  ASSERT_TRUE(job.ask(0, Topic::kPaused, 5).ok());
  job.all_ask({0, 1}, Topic::kRegroup, 1, table::encode(SegmentBody{.clock = 5}));
  EXPECT_EQ(job.take(0), Words{"pause for 1"});
  EXPECT_EQ(job.hears(0, job.ask(1, Topic::kPaused, 5)),
            (Words{"agreed on 1 at 5", "answer 16 at 1"}));
}

TEST(CoordinatorRegroup, DamageEndsTheJob) {
  CoordinatorRig job = CoordinatorRig::joined(1);
  ASSERT_TRUE(job.ask(0, Topic::kRegroup, 1, "?").ok());
  EXPECT_NE(job.take(0).at(0).find("rank 0 (host a) sends"), std::string::npos);
}

}  // namespace
}  // namespace shoal::test::coordinator_regroup_test
