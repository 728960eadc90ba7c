// Tests jobs whose workers exchange gradients among themselves and lose one of them, at every
// moment of an iteration: the others end with the same params, which hold each iteration's update
// once.
#include <gtest/gtest.h>

#include "shoal/base/error.h"
#include "support/lossy_job.h"

namespace shoal::test::lost_worker_test {
namespace {

struct Tally {
  int lost = 0, mixed = 0, dropped = 0, in_vain = 0;
};

// Tries a case with so many seeds.
Tally try_all(LossyCase one, int seeds) {
  Tally tally;
  int wrong = 0;
  for (int seed = 1; seed <= seeds && wrong < 3; ++seed) {
    one.seed = static_cast<std::uint64_t>(seed);
    const LossyRun run = run_lossy(one);
    EXPECT_EQ(run.wrong, "") << "exchange { " << one.exchange << " }, " << one.scheme << ", "
                             << one.rule << ", seed " << seed;
    wrong += !run.wrong.empty();
    tally.lost += run.was_lost;
    tally.mixed += run.was_mixed;
    tally.dropped += run.was_dropped;
    tally.in_vain += run.was_in_vain;
  }
  return tally;
}

// Returns an exchange by this way in which each layer travels alone.
std::string by(const std::string& way) {
  return str("way: ", way, " bandwidth: 3e7 latency_ms: 0.02");
}

class LostWorker : public testing::TestWithParam<const char*> {};

TEST_P(LostWorker, TheOthersHaveEachUpdateOnce) {
  for (const char* const rule : {"type: 'SGD' momentum: 0.9", "type: 'Adam' momentum: 0.9"})
    for (const int workers : {3, 4}) {
      const Tally tally =
          try_all({.exchange = by(GetParam()), .rule = rule, .workers = workers}, 10);
      EXPECT_GT(tally.lost, 5);
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, LostWorker,
                         testing::Values("TREE", "RING", "HALVING_DOUBLING", "DIRECT", "FACTORS"),
                         [](const auto& info) { return std::string(info.param); });

// A loss comes when one worker has updated some layers and another has not, and when one is an
// iteration further than another.
TEST(LostWorkers, EachKindOfMomentIsTried) {
  const Tally tally = try_all({.exchange = by("RING")}, 60);
  EXPECT_GT(tally.mixed, 0);
  EXPECT_GT(tally.dropped, 0);
}

TEST(LostWorkers, TwoAreLostOneAfterTheOther) {
  for (const char* const way : {"RING", "TREE", "FACTORS"})
    try_all({.exchange = by(way), .workers = 4, .losses = 2}, 20);
}

// The chief, then the next one, often before it has given the servers the params: the histories
// that momentum needs are not lost with them.
TEST(LostWorkers, EachChiefIsLostInTurn) {
  for (const char* const way : {"RING", "FACTORS"})
    for (const int losses : {1, 2, 3}) {
      const Tally tally = try_all(
          {.exchange = by(way), .workers = losses + 2, .losses = losses, .of_first = true}, 40);
      EXPECT_GT(tally.lost, 15);
      if (losses > 1) {
        EXPECT_GT(tally.in_vain, 0);
      }
    }
  for (const int losses : {1, 2, 3}) {
    const Tally tally = try_all(
        {.exchange = by("TABLE"), .workers = losses + 2, .losses = losses, .of_first = true}, 80);
    EXPECT_GT(tally.lost, 40);
    if (losses > 1) {
      EXPECT_GT(tally.in_vain, 0);
    }
  }
}

// The servers are lost, alone or with the workers that held rows. One of the others holds rows
// then.
TEST(LostWorkers, TheLastServerIsLost) {
  for (const char* const way : {"RING", "TREE", "FACTORS"})
    for (const int losses : {0, 1, 2})
      for (const bool of_first : {false, true})
        EXPECT_GT(try_all({.exchange = by(way),
                           .workers = losses + 2,
                           .losses = losses,
                           .of_first = of_first,
                           .with_servers = true},
                          20)
                      .lost,
                  losses == 2 ? 3 : 10);
  for (const int losses : {0, 1})
    for (const bool of_first : {false, true})
      EXPECT_GT(try_all({.exchange = by("TABLE"),
                         .rule = "type: 'SGD'",
                         .losses = losses,
                         .of_first = of_first,
                         .with_servers = true},
                        60)
                    .lost,
                30);
}

// The chief alone has made the params of the iteration that a loss has ended, and is lost about
// when the next generation is to begin: two others have them.
TEST(LostWorkers, WhatTheChiefHasSummedAgainIsNotLostWithIt) {
  for (const char* const way : {"RING", "FACTORS"})
    EXPECT_GT(
        try_all(
            {.exchange = by(way), .workers = 4, .losses = 2, .of_first = true, .as_it_leads = true},
            60)
            .in_vain,
        3);
}

// Nothing was trained: the next worker begins the job, with the params that the first one would
// have had.
TEST(LostWorkers, ChiefsAreLostBeforeTheJobBegins) {
  for (const char* const way : {"TABLE", "RING"})
    for (const int losses : {1, 2}) {
      const Tally tally = try_all({.exchange = by(way),
                                   .workers = losses + 2,
                                   .losses = losses,
                                   .of_first = true,
                                   .early = true},
                                  40);
      EXPECT_EQ(tally.lost, 40);
      EXPECT_GT(tally.in_vain, 20);
    }
}

TEST(LostWorkers, AClipTakesOneNormOfAllLayers) {
  for (const char* const way : {"RING", "DIRECT", "FACTORS"})
    try_all({.exchange = by(way), .more = "clip_gradients: 1e6"}, 10);
  try_all({.exchange = by("RING") + " layer { name: 'ip400' way: FACTORS }",
           .more = "clip_gradients: 1e6"},
          10);
}

TEST(LostWorkers, SomeLayersGoByTheServers) {
  for (const char* const way : {"RING", "FACTORS"})
    for (const char* const rule : {"type: 'SGD' momentum: 0.9", "type: 'Adam' momentum: 0.9"})
      try_all(
          {.exchange = by(way) + " layer { name: 'ip40' way: TABLE } layer { name: 'ip380' way: "
                                 "TABLE }",
           .rule = rule},
          60);
}

TEST(LostWorkers, FactorsOfSeveralIterationsAreUnderWay) {
  for (const char* const rule : {"type: 'SGD' momentum: 0.9", "type: 'Adam' momentum: 0.9"})
    try_all({.exchange = by("FACTORS"), .scheme = "type: 'ssp' staleness: 2", .rule = rule}, 20);
}

TEST(LostWorkers, AnIterationThatAWorkerSkippedCountsNothing) {
  for (const char* const way : {"RING", "FACTORS"})
    try_all({.exchange = by(way), .more = "on_nan: SKIP", .skipped = 2}, 15);
}

TEST(LostWorkers, LocalStepsAreSummed) {
  for (const char* const way : {"RING", "TREE"})
    try_all({.exchange = by(way),
             .scheme = "type: 'local_steps' local_steps: 3",
             .rule = "type: 'SGD'",
             .local_steps = 3,
             .bandwidth = 3e6},
            15);
}

}  // namespace
}  // namespace shoal::test::lost_worker_test
