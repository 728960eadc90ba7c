// ESync in virtual time: the numbers of steps of its rule, how long workers wait, and what becomes
// of rounds when workers change, come or go.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "shoal/base/error.h"
#include "shoal/base/random.h"
#include "shoal/table/pacer.h"
#include "shoal/table/scheme.h"
#include "support/expect.h"
#include "support/schemes.h"

namespace shoal::test::esync_test {
namespace {

using table::Clock;
using table::Instant;
using table::Pacer;
using table::Start;
using table::TaskReport;
using table::Verdict;
using Seconds = std::vector<double>;

Instant at(double seconds) { return Instant(std::llround(seconds * 1e9)); }

struct Round {
  std::vector<int> steps;  // by worker
  Seconds waits;           // from when each was done to the end of the round
  double seconds = 0;
  double mean_steps = 1;
};

// Workers with constant times for a step, an exchange that takes none, and so much for each
// question.
class Rig {
 public:
  explicit Rig(const std::string& words, const Seconds& seconds, double overhead = 0)
      : scheme(table::make_scheme(words).value()),
        pacer(scheme->make_pacer()),
        seconds_(seconds),
        overhead_(overhead) {
    for (int worker = 0; worker < count(); ++worker) pacer->join(worker, {});
  }

  // One clock, from the questions for its start to when all have pushed.
  Round round() {
    for (int worker = 0; worker < count(); ++worker)
      pacer->ready(worker, clock_, last(worker), at(now_));
    Round round{.steps = std::vector<int>(seconds_.size()), .waits = Seconds(seconds_.size())};
    std::vector<Start> starts = pacer->take_starts(at(now_));
    EXPECT_EQ(starts.size(), seconds_.size());
    for (const Start& start : starts) {
      round.steps[static_cast<std::size_t>(start.worker)] = static_cast<int>(start.steps);
      round.mean_steps = start.mean_steps;
    }
    Seconds ends = scheme->task.judged ? pulled(round) : assigned(round);
    const double end = std::ranges::max(ends);
    for (std::size_t i = 0; i < ends.size(); ++i) round.waits[i] = end - ends[i];
    round.seconds = end - now_;
    now_ = end;
    ++clock_;
    steps_ = round.steps;
    return round;
  }

  void change(int worker, double seconds) { seconds_[static_cast<std::size_t>(worker)] = seconds; }
  void exchange(const Seconds& seconds) { exchange_ = seconds; }
  int count() const { return static_cast<int>(seconds_.size()); }

  const std::unique_ptr<table::Scheme> scheme;
  const std::unique_ptr<Pacer> pacer;

 private:
  TaskReport last(int worker) const {
    const auto i = static_cast<std::size_t>(worker);
    if (steps_.empty()) return {};
    return {.steps = static_cast<std::uint32_t>(steps_[i]),
            .seconds = seconds_[i],
            .samples = 64.0 * steps_[i],
            .exchange = exchange_.empty() ? 0 : exchange_[i]};
  }

  Seconds assigned(const Round& round) const {
    Seconds ends;
    for (std::size_t i = 0; i < seconds_.size(); ++i)
      ends.push_back(now_ + round.steps[i] * seconds_[i]);
    return ends;
  }

  // The worker that ends a step next asks; the first of several.
  Seconds pulled(Round& round) {
    Seconds next, ends(seconds_.size(), -1);
    for (const double seconds : seconds_) next.push_back(now_ + seconds + overhead_);
    while (std::ranges::min(ends) < 0) {
      const auto i = static_cast<std::size_t>(std::ranges::min_element(next) - next.begin());
      const TaskReport report{.steps = static_cast<std::uint32_t>(++round.steps[i]),
                              .seconds = seconds_[i],
                              .exchange = exchange_.empty() ? 0 : exchange_[i]};
      const bool another =
          pacer->judge(static_cast<int>(i), clock_, report, at(next[i])) == Verdict::kAnother;
      if (!another) ends[i] = next[i];
      next[i] =
          another ? next[i] + seconds_[i] + overhead_ : std::numeric_limits<double>::infinity();
    }
    return ends;
  }

  Seconds seconds_, exchange_;
  const double overhead_;
  double now_ = 100;
  Clock clock_ = 0;
  std::vector<int> steps_;
};

// The formula of schemes.md.
int steps_by_formula(double slowest, double own, double epsilon, double overhead = 0) {
  return std::max(1,
                  static_cast<int>(std::floor((slowest - own - epsilon) / (own + overhead))) + 1);
}

// ---- the rule ----

TEST(Esync, VectorsOfTheNumberOfSteps) {
  const struct {
    double slowest, own;
    int steps;
  } cases[] = {{35, 1, 34}, {10, 3, 3}, {4, 1, 3}, {3.5, 1, 3}, {2, 1, 1}, {1.2, 1, 1}};
  for (const char* words : {"esync", "esync mode=pull"})
    for (const auto& c : cases) {
      SCOPED_TRACE(str(words, ": ", c.slowest, ", ", c.own));
      Rig rig(words, {c.own, c.slowest});
      EXPECT_EQ(rig.round().steps, (std::vector<int>{1, 1}));  // nothing is known yet
      for (int i = 0; i < 3; ++i) EXPECT_EQ(rig.round().steps, (std::vector<int>{c.steps, 1}));
      EXPECT_EQ(c.steps, steps_by_formula(c.slowest, c.own, 0.5));
    }
  Rig slow_questions("esync mode=pull", {3, 10}, 0.2);
  (void)slow_questions.round();
  EXPECT_EQ(slow_questions.round().steps[0], 3);
  EXPECT_EQ(steps_by_formula(10, 3, 0.5, 0.2), 3);
}

TEST(Esync, AgainstTheFormulaWithSpeedsFromOneTo35) {
  const std::uint64_t seed = 23;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int job = 0; job < 200; ++job) {
    Seconds seconds{1, 35};
    while (seconds.size() < 6) seconds.push_back(1 + 34 * random.unit());
    std::swap(seconds[static_cast<std::size_t>(job) % 6], seconds[1]);
    const double epsilon = job % 2 == 0 ? 0.5 : 0.05;
    for (const char* mode : {"assigned", "pull"}) {
      Rig rig(str("esync mode=", mode, " epsilon=", epsilon), seconds);
      (void)rig.round();
      for (int i = 0; i < 3; ++i) {
        const Round round = rig.round();
        for (std::size_t w = 0; w < seconds.size(); ++w) {
          ASSERT_EQ(round.steps[w], steps_by_formula(35, seconds[w], epsilon))
              << mode << ", seconds " << seconds[w] << ", epsilon " << epsilon;
          ASSERT_LT(round.waits[w], seconds[w] + epsilon);
        }
        ASSERT_EQ(std::ranges::count(seconds, 35.0), 1);
        ASSERT_NEAR(round.seconds, 35, 1e-6) << "the slowest makes one step, and nobody is later";
      }
    }
  }
}

TEST(Esync, ThroughputAgainstLockstep) {
  // Five fast devices and one slow one. With a ratio of exactly 35 no scheme can have more than (5
  // * 35 + 1) / 6 = 29.3 times the samples.
  const struct {
    double slowest;
    double times;
  } cases[] = {{35, 28.4}, {37, 30}};
  for (const auto& c : cases)
    for (const char* words : {"esync", "esync mode=pull"}) {
      Rig rig(words, {1, 1, c.slowest, 1, 1, 1});
      double steps = 0, seconds = 0;
      (void)rig.round();
      for (int i = 0; i < 100; ++i) {
        const Round round = rig.round();
        steps += std::accumulate(round.steps.begin(), round.steps.end(), 0);
        seconds += round.seconds;
      }
      // less the epsilon of 0.5 s
      EXPECT_GE(steps / seconds / (6 / c.slowest), c.times - 0.5) << words << ", " << c.slowest;
    }
}

TEST(Esync, ScarceEpsilonGivesThirtyTimes) {
  Rig rig("esync epsilon=0.01", {1, 1, 37, 1, 1, 1});
  (void)rig.round();
  const Round round = rig.round();
  EXPECT_GE(std::accumulate(round.steps.begin(), round.steps.end(), 0) / round.seconds,
            30 * 6 / 37.0);
}

// ---- more than the original ----

// A round can be looked at, as at the state server's.
TEST(Esync, ShowsARound) {
  for (const char* mode : {"assigned", "pull"}) {
    SCOPED_TRACE(mode);
    Rig rig(str("esync epsilon=0.25 mode=", mode), {3, 10});
    EXPECT_EQ(rig.pacer->take_round(), "");
    (void)rig.round();
    const Round second = rig.round();
    const Round third = rig.round();
    // an assigned round is known to have ended when all ask for the next
    const std::string shown = rig.pacer->take_round();
    EXPECT_HAS(shown, R"("num_workers": 2)");
    EXPECT_HAS(shown, R"("epsilon": 0.250000)");
    EXPECT_HAS(shown, str("\"t\": ", std::string(mode) == "pull" ? 3 : 2, ","));
    EXPECT_HAS(shown, str("[0, ", second.steps[0], ", 3.000000, "));
    EXPECT_HAS(shown, "[1, 1, 10.000000, ");
    EXPECT_HAS(shown, std::string(mode) == "pull" ? "true, 3]" : "true, 2]");
    EXPECT_EQ(rig.pacer->take_round(), "");
    if (std::string(mode) == "pull") continue;
    // or when all have left, after which none asks
    rig.pacer->leave(0, std::chrono::seconds(100));
    EXPECT_EQ(rig.pacer->take_round(), "");
    rig.pacer->leave(1, std::chrono::seconds(101));
    const std::string last = rig.pacer->take_round();
    EXPECT_HAS(last, "\"t\": 3,");
    EXPECT_HAS(last, str("[0, ", third.steps[0], ", 3.000000, "));
    EXPECT_HAS(last, "[1, 1, 10.000000, ");
  }
}

TEST(Esync, LimitsOfSteps) {
  for (const char* mode : {"assigned", "pull"}) {
    Rig rig(str("esync min_steps=2 max_steps=5 mode=", mode), {1, 20, 15});
    EXPECT_EQ(rig.round().steps[1], 2) << mode;
    const Round round = rig.round();
    EXPECT_EQ(round.steps[0], 5) << mode;
    EXPECT_EQ(round.steps[1], 2) << mode;
    EXPECT_EQ(round.steps[2], 2) << mode;
  }
}

TEST(Esync, StepsOfTheMeanWorker) {
  Rig rig("esync aggregation=steps", {1, 10, 3});
  EXPECT_EQ(rig.round().mean_steps, 1);
  const Round round = rig.round();
  EXPECT_EQ(round.steps, (std::vector<int>{9, 1, 3}));
  EXPECT_DOUBLE_EQ(round.mean_steps, 13.0 / 3);
}

TEST(Esync, TimesOfExchangesCount) {
  for (const char* mode : {"assigned", "pull"}) {
    Rig rig(str("esync mode=", mode), {3, 10});
    rig.exchange({4, 0});  // 4 seconds fewer for steps
    (void)rig.round();
    EXPECT_EQ(rig.round().steps[0], 1) << mode;
    Rig slow(str("esync mode=", mode), {3, 10});
    slow.exchange({0, 3});  // and 3 more
    (void)slow.round();
    EXPECT_EQ(slow.round().steps[0], 4) << mode;
  }
}

TEST(Esync, TheSlowestChanges) {
  Rig rig("esync", {1, 10});
  for (int i = 0; i < 3; ++i) (void)rig.round();
  rig.change(0, 50);
  (void)rig.round();  // nobody could know
  Round round = rig.round();
  for (int i = 0; i < 12; ++i) round = rig.round();
  EXPECT_EQ(round.steps, (std::vector<int>{1, 4}));
  EXPECT_LT(round.waits[1], 10.5);
  rig.change(0, 1);  // and again
  for (int i = 0; i < 30; ++i) round = rig.round();
  EXPECT_EQ(round.steps, (std::vector<int>{9, 1}));
}

TEST(Esync, AHiccupIsNoChange) {
  Rig rig("esync", {1, 10});
  for (int i = 0; i < 15; ++i) (void)rig.round();
  rig.change(1, 1000);
  (void)rig.round();
  rig.change(1, 10);
  // 1 s steps while the slowest is taken to need 16
  EXPECT_LE(rig.round().steps[0], 16);
}

TEST(Esync, WhoJoinsLateBeginsSlowly) {
  Rig rig("esync", {1, 10});
  for (int i = 0; i < 2; ++i) (void)rig.round();
  // has not asked: nobody waits for it
  rig.pacer->join(2, {});
  EXPECT_EQ(rig.round().steps, (std::vector<int>{9, 1}));
  rig.pacer->ready(2, 2, {}, {});  // of the round that runs
  const std::vector<Start> starts = rig.pacer->take_starts({});
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].steps, 1u);
  rig.pacer->ready(0, 3, {.steps = 9, .seconds = 1}, {});
  rig.pacer->ready(1, 3, {.steps = 1, .seconds = 10}, {});
  EXPECT_TRUE(rig.pacer->take_starts({}).empty());  // now it is one of them
  rig.pacer->ready(2, 3, {.steps = 1, .seconds = 5}, {});
  std::map<int, std::uint32_t> steps;
  for (const Start& start : rig.pacer->take_starts({})) steps[start.worker] = start.steps;
  EXPECT_EQ(steps, (std::map<int, std::uint32_t>{{0, 9}, {1, 1}, {2, 1}}));
}

TEST(Esync, WhoLeavesIsNotWaitedFor) {
  Rig rig("esync", {1, 10, 35});
  for (int i = 0; i < 2; ++i) (void)rig.round();
  rig.pacer->ready(0, 2, {.steps = 34, .seconds = 1}, {});
  rig.pacer->ready(1, 2, {.steps = 3, .seconds = 10}, {});
  EXPECT_TRUE(rig.pacer->take_starts({}).empty());
  rig.pacer->leave(2, {});
  const std::vector<Start> starts = rig.pacer->take_starts({});
  ASSERT_EQ(starts.size(), 2u);
  // the next slowest sets the pace
  EXPECT_EQ(starts[0].steps, 9u);
  Rig pull("esync mode=pull", {1, 10, 35});
  for (int i = 0; i < 2; ++i) (void)pull.round();
  for (const int worker : {0, 1, 2}) pull.pacer->ready(worker, 2, {}, at(200));
  EXPECT_EQ(pull.pacer->judge(0, 2, {.steps = 10, .seconds = 1}, at(210)), Verdict::kAnother);
  pull.pacer->leave(2, {});
  EXPECT_EQ(pull.pacer->judge(0, 2, {.steps = 10, .seconds = 1}, at(210)), Verdict::kPush);
}

TEST(Esync, PullDecidesAsTheOriginal) {
  Rig rig("esync mode=pull", {1, 10});
  (void)rig.round();
  rig.pacer->ready(0, 1, {}, at(110));
  // everyone makes a step
  EXPECT_EQ(rig.pacer->judge(0, 1, {.steps = 0}, at(110)), Verdict::kAnother);
  // the slowest is not in this round yet
  EXPECT_EQ(rig.pacer->judge(0, 1, {.steps = 1, .seconds = 1}, at(119.9)), Verdict::kAnother);
  rig.pacer->ready(1, 1, {}, at(120));
  // 1.5 s are left, no less
  EXPECT_EQ(rig.pacer->judge(0, 1, {.steps = 2, .seconds = 1}, at(128.5)), Verdict::kAnother);
  EXPECT_EQ(rig.pacer->judge(0, 1, {.steps = 3, .seconds = 1}, at(128.6)), Verdict::kPush);
  EXPECT_EQ(rig.pacer->judge(1, 1, {.steps = 1, .seconds = 10}, at(130)), Verdict::kPush);
}

TEST(Esync, Words) {
  const auto scheme =
      table::make_scheme(
          "esync epsilon=0.25 aggregation=uniform global_rate=0.5 momentum_policy=reset")
          .value();
  EXPECT_EQ(scheme->task.steps, 0);
  EXPECT_TRUE(scheme->task.paced);
  EXPECT_FALSE(scheme->task.judged);
  EXPECT_EQ(scheme->task.contribution, table::ContributionKind::kDelta);
  EXPECT_EQ(scheme->task.momentum, table::MomentumPolicy::kReset);
  EXPECT_EQ(scheme->task.weighing, table::Weighing::kUniform);
  EXPECT_TRUE(scheme->lockstep);
  EXPECT_EQ(table::make_scheme(scheme->name()).value()->name(), scheme->name());
  EXPECT_TRUE(table::make_scheme("esync mode=pull").value()->task.judged);
  for (const char* words : {"esync mode=pull aggregation=steps", "esync min_steps=3 max_steps=2",
                            "esync epsilon=-1", "esync global_rate=0", "esync mode=push"})
    EXPECT_FALSE(table::make_scheme(words).ok()) << words;
}

TEST(Esync, RowsTakeTheMeanOfDeltas) {
  const struct {
    const char* words;
    float scale;
    std::vector<float> weights;
  } cases[] = {{"esync aggregation=uniform", 0.5f, {1, 1}},
               {"esync aggregation=uniform global_rate=0.5", 0.25f, {1, 1}},
               {"esync", 0.25f, {1, 3}},
               {"esync aggregation=steps", 0.5f, {1, 3}}};
  const std::vector<table::WorkerView> workers(2, {.pushed = 1});
  const std::vector<table::Contribution> held{{.worker = 0, .weight = 1},
                                              {.worker = 1, .weight = 3}};
  for (const auto& c : cases) {
    const auto merge =
        table::make_scheme(c.words).value()->next_merge({.workers = workers, .held = held});
    ASSERT_TRUE(merge.has_value());
    EXPECT_EQ(merge->scale, c.scale) << c.words;
    EXPECT_EQ(merge->weights, c.weights) << c.words;
    EXPECT_EQ(merge->apply, table::Apply::kAdd);
  }
}

}  // namespace
}  // namespace shoal::test::esync_test
