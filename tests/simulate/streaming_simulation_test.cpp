// Scheme streaming in virtual time: how evenly it loads links, how little its workers wait on slow
// ones, and that a quorum waits for no slow worker and no dead one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "shoal/simulate/failure_account.h"
#include "shoal/simulate/simulation.h"
#include "support/simulation_rig.h"

namespace shoal::test::streaming_simulation_test {
namespace {

using simulate::Outcome;
using simulation::digits_solver;
using simulation::run;
using simulation::with;

constexpr double kStep = 0.01;  // seconds

std::string workers(int count, const std::string& card) {
  return "worker { count: " + std::to_string(count) +
         " compute { ms: 10 } } server { count: 1 } card { " + card + " }";
}

// Returns the most bytes between two points over the mean, while training is under way.
double peak_of(const Outcome& outcome) {
  const auto& points = outcome.points;
  const std::size_t first = points.size() / 4, last = points.size() * 3 / 4;
  double most = 0;
  for (std::size_t i = first; i < last; ++i)
    most = std::max(most, static_cast<double>(points[i + 1].bytes - points[i].bytes));
  return most * static_cast<double>(last - first) /
         static_cast<double>(points[last].bytes - points[first].bytes);
}

// The share of the time in which workers compute.
double useful(const Outcome& outcome) {
  double compute = 0, all = 0;
  for (const auto& worker : outcome.workers) compute += worker.compute, all += worker.seconds;
  return compute / all;
}

TEST(StreamingSimulation, ThePeakOfTrafficIsItsMean) {
  for (const bool dry : {false, true}) {
    const auto peak = [&](const char* scheme) {
      return peak_of(run(with(digits_solver("streaming_peak", "max_iter: 12"), scheme),
                         workers(4, "bandwidth: 1e6 latency_ms: 1"),
                         {.test_every = 4 * kStep, .dry = dry}));
    };
    EXPECT_LE(peak("type: 'streaming' local_steps: 32 fragments: 8 overlap: 2"), 1.3) << dry;
    EXPECT_GE(peak("type: 'local_steps' local_steps: 32"), 4) << "the same bytes, at once";
  }
}

// An exchange of all rows takes about 7 steps of time here.
TEST(StreamingSimulation, AnExchangeHidesBehindTheNextSteps) {
  for (const bool dry : {false, true}) {
    const auto share = [&](const char* scheme) {
      return useful(run(with(digits_solver("streaming_hides", "max_iter: 30"), scheme),
                        workers(4, "bandwidth: 5e5 latency_ms: 10"), {.dry = dry}));
    };
    EXPECT_GE(share("type: 'streaming' local_steps: 24 fragments: 4 overlap: 5"), 0.95) << dry;
    EXPECT_LT(share("type: 'local_steps' local_steps: 24"), 0.85) << dry;
  }
}

TEST(StreamingSimulation, AQuorumWaitsForNoSlowWorker) {
  const std::string cluster =
      "worker { count: 3 compute { ms: 10 } } worker { compute { ms: 100 } } server { count: 2 } "
      "card { bandwidth: 1e8 latency_ms: 0.1 }";
  const std::string scheme = "type: 'streaming' local_steps: 8 fragments: 2 overlap: 3";
  const auto solver = [&](const std::string& more) {
    return with(digits_solver("streaming_slow", "max_iter: 20"), scheme + more);
  };
  const Outcome all = run(solver(""), cluster, {}), some = run(solver(" quorum: 3"), cluster, {});
  // Rounds of the fast workers take 80 ms; the slow one goes on alone behind them.
  const auto seconds_of_first = [](const Outcome& outcome) { return outcome.workers[0].seconds; };
  EXPECT_GT(all.workers[0].rows, 10);
  EXPECT_LT(some.workers[0].rows + some.workers[1].rows, 0.05 * 2 * 1.6);
  EXPECT_GE(seconds_of_first(all), 16);
  // The late pushes of the slow worker are in the rows all the same.
  EXPECT_EQ(0u, some.counters.dropped);
  EXPECT_EQ(all.counters.contributions, some.counters.contributions);
  EXPECT_GT(some.counters.merges, all.counters.merges);
}

// For 300 ms nobody knows that the worker is dead.
TEST(StreamingSimulation, AQuorumDoesNotStopForADeadWorker) {
  const std::string cluster =
      "worker { count: 3 compute { ms: 10 } } worker { compute { ms: 10 } failure { at: 0.4 "
      "unnoticed: 0.3 } } server { count: 2 } card { bandwidth: 1e8 latency_ms: 0.1 }";
  const std::string scheme = "type: 'streaming' local_steps: 8 fragments: 2 overlap: 3";
  const auto outcome = [&](const std::string& more) {
    return run(with(digits_solver("streaming_dead", "max_iter: 20"), scheme + more), cluster, {});
  };
  const Outcome all = outcome(""), some = outcome(" quorum: 2");
  ASSERT_TRUE(all.failures && some.failures);
  EXPECT_NEAR(20 * 0.08 + 0.25, all.seconds, 0.07) << "they wait";
  EXPECT_NEAR(20 * 0.08, some.seconds, 0.02);
  EXPECT_GT(useful(some), 0.98);
}

}  // namespace
}  // namespace shoal::test::streaming_simulation_test
