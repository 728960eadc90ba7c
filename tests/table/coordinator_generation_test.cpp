// The chief's words of the next generation, and their effect when others take part: parts
// of the data, servers' links, groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "shoal/table/coordinator.h"
#include "support/coordinator_rig.h"
#include "support/expect.h"
#include "support/schemes.h"

namespace shoal::test::coordinator_generation_test {
namespace {

using table::Clock;
using table::RosterBody;
using table::SegmentBody;
using table::Topic;
using table::Want;
using Words = std::vector<std::string>;
using Process = CoordinatorRig::Process;

// The chief, rank 0, says this at the end of a generation, and the others nothing but their clocks.
RosterBody regroup(CoordinatorRig& job, const std::vector<std::uint32_t>& workers,
                   const SegmentBody& chief, Clock generation = 1) {
  std::vector<std::pair<std::uint32_t, SegmentBody>> ends;
  for (const std::uint32_t rank : workers)
    ends.emplace_back(rank, rank == 0 ? chief : SegmentBody{.clock = chief.clock});
  return job.regroup(ends, generation);
}

std::vector<double> each(const RosterBody& roster, double RosterBody::Process::*number) {
  std::vector<double> numbers;
  for (const auto& process : roster.processes) numbers.push_back(process.*number);
  return numbers;
}

// A worker that stays keeps its part, and a new one has the mean.
TEST(CoordinatorGenerations, PartsOfTheDataAreTheWorkersOwn) {
  CoordinatorRig job = CoordinatorRig::joined(3);
  const std::uint32_t joining = job.coordinator.enroll();
  ASSERT_TRUE(job.ask(1, Topic::kLeave, 5, table::encode(table::LeaveBody{})).ok());
  ASSERT_TRUE(job.join(joining, {.server = false}).ok());
  job.all_ask({0, 1, 2}, Topic::kPaused, 5);
  EXPECT_EQ(each(regroup(job, {0, 1, 2}, {.clock = 5, .weights = {1, 9, 3}}),
                 &RosterBody::Process::weight),
            (std::vector<double>{1, 0, 3, 2}));
  EXPECT_EQ(each(regroup(job, {0, 2, 3}, {.clock = 6, .weights = {4, 5, 6}}, 2),
                 &RosterBody::Process::weight),
            (std::vector<double>{4, 0, 5, 6}));
  EXPECT_EQ(each(regroup(job, {0, 2, 3}, {.clock = 6}, 3), &RosterBody::Process::weight),
            (std::vector<double>{0, 0, 0, 0}))
      << "nothing is said: all are equal";
}

// A statement about a link holds until the next one. One of which nothing was said is as
// the others, on the average.
TEST(CoordinatorGenerations, LinksAreTheServersOwn) {
  CoordinatorRig job = CoordinatorRig::joined(2);
  EXPECT_EQ(each(regroup(job, {0, 1}, {.clock = 5, .bandwidths = {1e6, 3e6}}),
                 &RosterBody::Process::bandwidth),
            (std::vector<double>{1e6, 3e6}));
  const std::uint32_t joining = job.coordinator.enroll();
  ASSERT_TRUE(job.join(joining, {.worker = false}).ok());
  job.all_ask({0, 1}, Topic::kPaused, 6);
  const RosterBody roster = regroup(job, {0, 1}, {.clock = 6}, 2);
  EXPECT_EQ(each(roster, &RosterBody::Process::bandwidth), (std::vector<double>{1e6, 3e6, 2e6}));
  EXPECT_FALSE(roster.measures);
}

// Measuring links takes a generation of its own, whenever there is a server whose
// link nobody knows. It is not stopped for anything: what is wanted meanwhile comes after it, and
// who wants to join has joined then.
TEST(CoordinatorGenerations, UnknownLinksAreMeasured) {
  CoordinatorRig job(std::vector<Process>{
      {.server = false}, {.worker = false}, {.worker = false}, {.server = false}});
  const std::vector<std::uint32_t> workers{0, 3};
  EXPECT_TRUE(regroup(job, workers, {.clock = 5, .measures = true}).measures);
  const std::uint32_t joining = job.coordinator.enroll();
  job.forget();
  ASSERT_TRUE(job.join(joining, {.server = false}).ok());
  EXPECT_EQ(job.hears(0, job.ask(1, Topic::kPause, 1, body_of(Want::kRequeue))), Words{})
      << "a stop, which waits";
  RosterBody roster =
      regroup(job, workers, {.clock = 5, .bandwidths = {1e6, 2e6}, .measures = true}, 2);
  EXPECT_EQ(roster.processes[joining].worker, 2);
  EXPECT_FALSE(roster.measures);
  for (const std::uint32_t rank : {3u, joining}) {
    const Words told = job.take(rank);
    EXPECT_EQ(std::ranges::count(told, "pause for 3"), 1) << rank;
    EXPECT_EQ(std::ranges::count(told, "pause for 4"), 0) << rank;
  }
}

TEST(CoordinatorGenerations, NothingIsMeasuredOfOneServerNorTwice) {
  CoordinatorRig one(std::vector<Process>{{}, {.server = false}});
  EXPECT_FALSE(regroup(one, {0, 1}, {.clock = 5, .measures = true}).measures);
  CoordinatorRig two = CoordinatorRig::joined(2);
  EXPECT_TRUE(regroup(two, {0, 1}, {.clock = 5, .measures = true}).measures);
  EXPECT_FALSE(
      regroup(two, {0, 1}, {.clock = 5, .bandwidths = {0, 1e6}, .measures = true}, 2).measures)
      << "0 is what was found";
}

// Groups that were found are of the workers that there are; those of the solver, of the workers
// that the job began with.
TEST(CoordinatorGenerations, TheChiefsSchemeComesBeforeAPhases) {
  CoordinatorRig job = CoordinatorRig::joined(3, "async");
  ASSERT_TRUE(job.ask(1, Topic::kLeave, 5, table::encode(table::LeaveBody{})).ok());
  job.all_ask({0, 1, 2}, Topic::kPaused, 5);
  EXPECT_EQ(table::words_of(regroup(job, {0, 1, 2}, {.clock = 5}).scheme), "async");
  const SegmentBody found{.clock = 9,
                          .phase_end = 9,
                          .next_scheme = table::scheme_of("grouped"),
                          .scheme = table::scheme_of("grouped groups=0|1")};
  EXPECT_EQ(table::words_of(regroup(job, {0, 2}, found, 2).scheme), "grouped groups=0|1")
      << "1 is rank 2";
  const SegmentBody phase{
      .clock = 12, .phase_end = 12, .next_scheme = table::scheme_of("grouped groups=0,1|2")};
  EXPECT_EQ(table::words_of(regroup(job, {0, 2}, phase, 3).scheme), "grouped groups=0|1");
}

TEST(CoordinatorGenerations, WhatCannotBeEndsTheJob) {
  const std::pair<SegmentBody, const char*> cases[] = {
      {{.weights = {1}}, "rank 0 (host a) sends 1 numbers for the workers of 2"},
      {{.bandwidths = {1, 1, 1}}, "rank 0 (host a) sends 3 numbers for the servers of 2"},
      {{.weights = {1, -1}}, "rank 0 (host a) sends a weight or bandwidth of -1"},
      {{.bandwidths = {1, std::numeric_limits<double>::quiet_NaN()}},
       "sends a weight or bandwidth of nan"},
  };
  for (const auto& [end, why] : cases) {
    CoordinatorRig job = CoordinatorRig::joined(2);
    for (const std::uint32_t rank : {0u, 1u})
      ASSERT_TRUE(
          job.ask(rank, Topic::kRegroup, 1, table::encode(rank == 0 ? end : SegmentBody())).ok());
    ASSERT_NE(job.coordinator.ended(), nullptr) << why;
    EXPECT_HAS(job.coordinator.ended()->message, why);
  }
}

}  // namespace
}  // namespace shoal::test::coordinator_generation_test
