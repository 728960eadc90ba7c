// The schemes there are, through a real shard: their vectors, and every interleaving of a small
// job.
#include "shoal/table/scheme.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "support/expect.h"
#include "support/schemes.h"
#include "support/shard_rig.h"

namespace shoal::table::scheme_test {
namespace {

using test::plan_of;
using test::push_of;
using test::ShardRig;

TEST(Schemes, AreMadeOfWords) {
  const struct {
    const char* words;
    const char* name;
    bool lockstep;
  } cases[] = {
      {"bsp", "bsp", true},
      {"ssp 0", "bsp", true},
      {"ssp 0 factor=1", "ssp 0 factor=1", true},
      {" ssp  3 ", "ssp 3", false},
      {"ssp staleness=3", "ssp 3", false},
      {"ssp unbounded", "ssp unbounded", false},
      {"async", "async", false},
      {"async factor=4.0 payload=gradient weighting=none", "async factor=4", false},
      {"ssp weighting_on=rate weighting=polynomial staleness=1 weighting_a=0.50 factor=0",
       "ssp 1 weighting=polynomial weighting_a=0.5 weighting_on=rate", false},
      {"async weighting=inverse weighting_definition=counter weighting_floor=1 weighting_cap=8",
       "async weighting=inverse weighting_cap=8", false},
      {"dc_asgd compensation=0.04 factor=1", "dc_asgd factor=1", false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.words);
    const auto scheme = make_scheme(c.words);
    ASSERT_TRUE(scheme.ok()) << scheme.error().message;
    EXPECT_EQ(scheme.value()->name(), c.name);
    EXPECT_EQ(scheme.value()->lockstep, c.lockstep);
    EXPECT_EQ(scheme.value()->contribution(), ContributionKind::kGradient);
    EXPECT_EQ(make_scheme(scheme.value()->name()).value()->name(), c.name);
    EXPECT_EQ(scheme.value()->spec().make().value()->spec(), scheme.value()->spec());
  }
  EXPECT_TRUE(std::ranges::is_sorted(scheme_names()));
  EXPECT_GE(scheme_names().size(), 4u);
}

TEST(Schemes, WordsThatMakeNoneAreNamed) {
  const struct {
    const char* words;
    const char* error;
  } cases[] = {
      {"ssp -1",
       "staleness is -1; it must be a whole number of clocks, 0 or more, or \"unbounded\""},
      {"ssp two",
       "staleness is two; it must be a whole number of clocks, 0 or more, or \"unbounded\""},
      {"ssp 1.5",
       "staleness is 1.5; it must be a whole number of clocks, 0 or more, or \"unbounded\""},
      {"ssp 99999999999999999999",
       "staleness is 99999999999999999999; it must be a whole number of clocks, 0 or more, or "
       "\"unbounded\""},
      {"ssp", "ssp needs staleness=..."},
      {"ssp 1 staleness=1", "staleness is given twice"},
      {"ssp factor=1 2", "'2' is not of the form key=value"},
      {"ssp stalenes=1",
       "ssp has no 'stalenes'; did you mean 'staleness'?; it has staleness, payload, compensation, "
       "factor, weighting"},
      {"ssp 0 factor=2 weighting=inverse",
       "staleness 0 is bsp, which makes one update of all workers: its only parameter is factor; "
       "for deltas use local_steps"},
      {"bsp 1", "'1' is not of the form key=value"},
      {"bsp staleness=1",
       "bsp has no 'staleness', how far a worker may be ahead of the slowest: of ssp, and of "
       "grouped between groups; it has no parameters"},
      {"bsp weighting=inverse",
       "bsp has no 'weighting', less weight for a stale update: of schemes whose updates come one "
       "by one; where those of all workers are one, none is stale; it has no parameters"},
      {"async moving_rate=0.5",
       "async has no 'moving_rate', how hard elastic averaging pulls: of elastic, where "
       "workers send weights"},
      {"async local_steps=4",
       "async has no 'local_steps', steps of a worker's own solver between two exchanges: of "
       "deltas and "
       "weights; a gradient is of one step; it has payload"},
      {"async payload=deltas", "payload is 'deltas'; did you mean 'delta'? Known: gradient, delta"},
      {"async payload=delta compensation=1",
       "async has no 'compensation', the lambda of delay compensation: of gradients merged one by "
       "one"},
      {"async payload=delta local_steps=0",
       "local_steps is 0; it must be a whole number, 1 to 1000000"},
      {"async factor=-1", "factor is -1; it must be a number, 0 or more"},
      {"async factor=nan", "factor is nan; it must be a number, 0 or more"},
      {"async weighting_a=1", "async has no 'weighting_a', how steep a weighting is"},
      {"async weighting=inverse weighting_a=1",
       "async has no 'weighting_a', how steep a weighting is; inverse is 1/Y"},
      {"async weighting=cutoff", "async needs weighting_a=..."},
      {"async weighting=exponential weighting_a=0",
       "weighting_a is 0; it must be a number, above 0"},
      {"async weighting=inverse weighting_floor=3 weighting_cap=2",
       "weighting_cap is below weighting_floor"},
      {"async payload=delta weighting=inverse weighting_on=rate",
       "async has no 'weighting_on', whether a weighting is of gradient or rate: in deltas and "
       "weights the rate is at work already"},
      {"asynch", "no scheme is named 'asynch'; did you mean 'async'? Known: "},
      {"nothing", "no scheme is named 'nothing'; known: "},
      {"", "it has no name; known: async, bsp, "},
  };
  for (const auto& c : cases) {
    const auto scheme = make_scheme(c.words);
    ASSERT_FALSE(scheme.ok()) << c.words;
    EXPECT_EQ(scheme.error().code, Code::kConfig);
    EXPECT_EQ(scheme.error().message.rfind(str("scheme '", c.words, "': ", c.error), 0), 0u)
        << scheme.error().message;
  }
}

TEST(SchemeSpecs, AreValuesWhoseGroupsCanBeOthers) {
  SchemeSpec spec = make_scheme("grouped staleness=2 groups=0|1").value()->spec();
  EXPECT_EQ(spec, (SchemeSpec{.name = "grouped", .groups = Groups{{0}, {1}}, .staleness = 2}));
  spec.groups = Groups{{0, 2}, {1}};
  EXPECT_EQ(spec.words(), "grouped groups=0,2|1 staleness=2");
  EXPECT_EQ(spec.make().value()->unfit(3), "");
  spec.groups.reset();
  EXPECT_EQ(spec.words(), "grouped staleness=2");
  EXPECT_HAS(spec.make().error().message, "grouped needs groups=...");
  EXPECT_EQ(SchemeSpec().make().value()->name(), "bsp");
}

// ---- vectors ----

TEST(Schemes, BspStepsOnTheMeanOnce) {
  Plan plan = plan_of("bsp", 2);
  plan.rule.momentum = 0.9f;
  ShardRig rig(plan, 1);
  for (Clock clock = 0; clock < 2; ++clock)
    for (int worker = 0; worker < 2; ++worker) {
      Push push = push_of(0, clock, worker == 0 ? 2 : 4);
      push.rate = 0.1f;
      push.base = clock;
      rig.give(worker, push);
      const char* both = clock == 0 ? "row 0@1=0.7v1 to 0, row 0@1=0.7v1 to 1"
                                    : "row 0@2=0.13v2 to 0, row 0@2=0.13v2 to 1";
      EXPECT_EQ(rig.said(), worker == 0 ? "" : both);
    }
}

TEST(Schemes, SspOfOneHoldsTheFastUntilTheSlowestMoves) {
  ShardRig rig(plan_of("ssp 1", 3));
  rig.push(0, 0, 3);
  EXPECT_EQ(rig.said(), "row 0@1=-1v1 to 0");
  rig.push(0, 1, 3);
  EXPECT_EQ(rig.said(), "") << "2 > 0 + 1";
  rig.push(1, 0, 3);
  EXPECT_EQ(rig.said(), "row 0@1=-3v3 to 1");
  rig.push(2, 0, 3);
  EXPECT_EQ(rig.said(), "row 0@2=-4v4 to 0, row 0@1=-4v4 to 2");
  EXPECT_EQ(rig.shard().counters().parked, 1u);
  EXPECT_EQ(rig.shard().counters().staleness[1], 3u)
      << "who read at 1 while the slowest was at 0, or at 2 while it was at 1";
  EXPECT_EQ(rig.shard().counters().staleness[0], 1u);
}

TEST(Schemes, ReadsAreNotAheadOfWhoIsNotWaitedFor) {
  ShardRig rig(plan_of("async", 2));
  rig.push(1, 0, 1);
  rig.give(1, Retire{1});
  for (const Clock clock : {0, 1, 2, 3}) rig.push(0, clock, 1);
  EXPECT_EQ(rig.shard().counters().staleness[1], 1u) << "worker 1, when worker 0 was at 0";
  EXPECT_EQ(rig.shard().counters().staleness[0], 4u) << "worker 0, alone";
}

TEST(Schemes, SspOfNoneReleasesAllAtOnce) {
  ShardRig rig(plan_of("ssp 0", 3));
  rig.push(2, 0, 3);
  rig.push(0, 0, 3);
  EXPECT_EQ(rig.said(), "");
  rig.push(1, 0, 3);
  EXPECT_EQ(rig.said(), "row 0@1=-3v1 to 0, row 0@1=-3v1 to 1, row 0@1=-3v1 to 2");
}

TEST(Schemes, TheDeathOfTheSlowestReleases) {
  for (const bool dies : {true, false}) {
    ShardRig rig(plan_of("ssp 1", 3));
    rig.push(0, 0, 0);
    rig.push(0, 1, 0);
    rig.push(1, 0, 0);
    rig.said();
    if (dies)
      rig.leave(2);
    else
      rig.give(2, Retire{0});
    EXPECT_EQ(rig.said(), "row 0@2=0v3 to 0");
  }
}

TEST(Schemes, AsyncAppliesEachAloneAndReleasesItsWorkerAlone) {
  ShardRig rig(plan_of("async", 3), 30);
  const struct {
    int worker;
    Clock clock;
    float gradient;
    const char* said;
  } steps[] = {{1, 0, 3, "row 0@1=29v1 to 1"},
               {1, 1, 3, "row 0@2=28v2 to 1"},
               {0, 0, 30, "row 0@1=18v3 to 0"},
               {1, 2, 3, "row 0@3=17v4 to 1"},
               {2, 0, -6, "row 0@1=19v5 to 2"}};
  for (const auto& step : steps) {
    rig.push(step.worker, step.clock, step.gradient);
    EXPECT_EQ(rig.said(), step.said);
  }
}

// ---- every interleaving ----

constexpr int kWorkers = 3;

// One number in which each contribution is a bit, and some that show rounding. Pushes go to both
// rows at once.
struct Job {
  explicit Job(const std::string& words) : scheme(make_scheme(words).value()), rig(plan(words)) {}

  static Plan plan(const std::string& words) {
    Plan plan = plan_of(words, kWorkers, {1, 5});
    plan.rows.edit()[1].lr_mult = 0.01f;
    return plan;
  }
  // Weights 1, 1, 2: their sum is 4, and a division by it exact. Alone, a contribution moves the
  // row by 3 * (1 / 3).
  void push(int worker) {
    const Clock clock = done[worker]++;
    const float bit = static_cast<float>(1 << (4 * worker + static_cast<int>(clock)));
    for (RowId row = 0; row < 2; ++row) {
      const float weight = worker == 2 ? 2 : 1, value = row == 1           ? bit
                                                        : scheme->lockstep ? 4 * bit / weight
                                                                           : bit;
      auto numbers = std::make_shared<std::vector<float>>(row == 0 ? 1 : 5, value);
      for (std::size_t i = 0; row == 1 && i < numbers->size(); ++i)
        (*numbers)[i] = std::sin(value + static_cast<float>(i));
      Push push{.row = row, .clock = clock, .payload = as_payload({*numbers, numbers})};
      push.weight = weight, push.base = rig.base(worker, row), push.rate = scheme->lockstep ? 1 : 3;
      rig.give(worker, push);
    }
    hear();
  }
  void hear() {
    for (const Outgoing& one : std::exchange(rig.out(), {})) {
      const auto& row = std::get<RowMessage>(one.message);
      rig.base(one.to, row.row) = row.version;
      if (row.row != 0) continue;
      ASSERT_EQ(row.clock, done[one.to]) << "worker " << one.to;
      reads[one.to] = row.clock;
      check(one.to, row.clock, static_cast<unsigned>(-row.payload.floats()[0]), row.version);
    }
  }
  // The contents of a read at `clock`. The bits are whole as long as all are there: then what a
  // contribution is divided by is known.
  void check(int reader, Clock clock, unsigned bits, Version version) const {
    int merges = 0;
    if (scheme->lockstep) {
      ASSERT_EQ(version, clock);
    }
    if (gone >= 0) return;
    for (int worker = 0; worker < kWorkers; ++worker) {
      const unsigned held = bits >> (4 * worker) & 15;
      const Clock prefix = std::countr_one(held);
      ASSERT_EQ(held, (1u << prefix) - 1) << "not the first so many of worker " << worker;
      if (worker == reader) {
        ASSERT_EQ(prefix, clock) << "the reader's own";
      }
      ASSERT_GE(prefix, clock - staleness)
          << "worker " << worker << "'s, read by " << reader << " at " << clock;
      merges += static_cast<int>(prefix);
    }
    if (!scheme->lockstep) {
      ASSERT_EQ(version, merges);
    }
    ASSERT_EQ(bits >> 12, 0u);
  }
  bool can_move(int worker) const { return worker != gone && reads[worker] == done[worker]; }
  // A worker that may not move is ahead of the slowest by more than the bound.
  void check_progress(Clock clocks) const {
    Clock least = kUnbounded;
    for (int worker = 0; worker < kWorkers; ++worker)
      if (worker != gone) least = std::min(least, done[worker]);
    bool somebody = least >= clocks;
    for (int worker = 0; worker < kWorkers; ++worker) {
      if (worker == gone) continue;
      somebody |= can_move(worker) && done[worker] < clocks;
      ASSERT_EQ(can_move(worker), done[worker] <= least + staleness) << "worker " << worker;
    }
    ASSERT_TRUE(somebody) << "nobody can move";
  }

  const std::unique_ptr<Scheme> scheme;
  const Clock staleness = scheme->lockstep            ? 0
                          : scheme->name() == "async" ? 100
                                                      : scheme->name().back() - '0';
  ShardRig rig;
  Clock done[kWorkers] = {}, reads[kWorkers] = {};
  int gone = -1;
};

const char* const kListed[] = {"bsp", "ssp 1", "ssp 2", "async"};

TEST(Schemes, EveryInterleavingOfThreeWorkersAndFourClocksKeepsThePromises) {
  constexpr Clock kClocks = 4;
  // 3! orders in each clock; 12! / (4!)^3
  const std::size_t possible[] = {6 * 6 * 6 * 6, 0, 0, 34650};
  for (std::size_t s = 0; s < std::size(kListed); ++s) {
    SCOPED_TRACE(kListed[s]);
    std::vector<int> order = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    std::size_t finished = 0;
    std::vector<float> first;
    do {
      Job job(kListed[s]);
      std::size_t moved = 0;
      for (; moved < order.size() && job.can_move(order[moved]); ++moved) {
        job.push(order[moved]);
        job.check_progress(kClocks);
        if (::testing::Test::HasFatalFailure())
          FAIL() << "after " << moved + 1 << " of " << ::testing::PrintToString(order);
      }
      // every order that begins so is blocked: on to the next beginning
      if (moved < order.size()) {
        std::sort(order.begin() + static_cast<std::ptrdiff_t>(moved) + 1, order.end(),
                  std::greater<>());
        continue;
      }
      ++finished;
      ASSERT_EQ(job.rig.shard().counters().contributions, 24u);
      ASSERT_EQ(job.rig.shard().counters().merges, job.scheme->lockstep ? 8u : 24u);
      ASSERT_EQ(job.rig.numbers(0)[0], -4095);
      if (first.empty()) first = job.rig.numbers(1, Part::kHistory);
      if (job.scheme->lockstep) {
        ASSERT_TRUE(job.rig.numbers(1, Part::kHistory) == first)
            << "bits by the order of arrival: " << ::testing::PrintToString(order);
      }
    } while (std::next_permutation(order.begin(), order.end()));
    if (possible[s] != 0) {
      EXPECT_EQ(finished, possible[s]);
    }
    EXPECT_GT(finished, 1000u);
  }
}

// Worker 1 makes 0 to 3 pushes of 3, then retires or is lost, at every point of every interleaving.
TEST(Schemes, AWorkerMayGoAtEveryPoint) {
  constexpr Clock kClocks = 3;
  constexpr int kGo = kWorkers;
  for (const char* words : kListed)
    for (const bool dies : {true, false})
      for (int pushes = 0; pushes <= 3; ++pushes) {
        SCOPED_TRACE(str(words, dies ? " dies after " : " retires after ", pushes));
        std::vector<int> order = {0, 0, 0, 2, 2, 2, kGo};
        order.insert(order.end(), static_cast<std::size_t>(pushes), 1);
        std::sort(order.begin(), order.end());
        std::size_t finished = 0;
        do {
          // goes after its last push
          if (std::find(std::find(order.begin(), order.end(), kGo), order.end(), 1) != order.end())
            continue;
          Job job(words);
          std::size_t moved = 0;
          for (; moved < order.size() && (order[moved] == kGo || job.can_move(order[moved]));
               ++moved) {
            if (order[moved] != kGo) {
              job.push(order[moved]);
            } else {
              job.gone = 1;
              if (dies)
                job.rig.leave(1);
              else
                job.rig.give(1, Retire{job.done[1]});
              job.hear();
            }
            job.check_progress(kClocks);
            if (::testing::Test::HasFatalFailure())
              FAIL() << "after " << moved + 1 << " of " << ::testing::PrintToString(order);
          }
          finished += moved == order.size();
        } while (std::next_permutation(order.begin(), order.end()));
        EXPECT_GT(finished, 0u);
      }
}

}  // namespace
}  // namespace shoal::table::scheme_test
