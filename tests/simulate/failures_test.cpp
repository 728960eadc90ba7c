// Tests jobs whose workers fail, and in whose places others join, in virtual time.
#include <gtest/gtest.h>

#include <cmath>

#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/failure_account.h"
#include "shoal/simulate/simulation.h"
#include "support/data_files.h"
#include "support/simulation_rig.h"

namespace shoal::test::failures_test {
namespace {

using simulate::FailureFigures;
using simulate::Outcome;
using simulation::digits_solver;
using simulation::in_phases;
using simulation::run;
using simulation::with;

constexpr double kLearningRows = 6;  // of digits_solver, on two servers

// Two workers that stay, and one with these failures; an iteration takes 10 ms.
std::string three(const std::string& failure) {
  return "worker { count: 2 compute { ms: 10 } } worker { compute { ms: 10 } failure { " + failure +
         " } } server { count: 2 } card { bandwidth: 1e8 latency_ms: 0.1 }";
}

constexpr const char* kSchemes[] = {"type: 'bsp'",
                                    "type: 'ssp' staleness: 2",
                                    "type: 'async'",
                                    "type: 'async' share_iterations: true",
                                    "type: 'drift_barrier' max_advance: 2",
                                    "type: 'sync_backup' backup: 1",
                                    "type: 'local_steps' local_steps: 2",
                                    "type: 'elastic' local_steps: 2",
                                    "type: 'esync' epsilon: 0.001",
                                    "type: 'streaming' local_steps: 4 fragments: 2 overlap: 1",
                                    "type: 'streaming' local_steps: 4 fragments: 2 overlap: 1 "
                                    "quorum: 2 global_momentum: 0.3"};

double sum_of(const std::vector<double>& all) {
  double sum = 0;
  for (const double each : all) sum += each;
  return sum;
}

// The worker is in its sixth step when it is lost. All that it had finished is in the params, and
// the one in its place computes the rest of the job with the others.
TEST(Failures, BspLosesTheStepUnderWayAndNoMore) {
  const Outcome outcome =
      run(digits_solver("fail_bsp", "max_iter: 40"), three("at: 0.0575 repair: 0.1"), {});
  ASSERT_TRUE(outcome.failures);
  const FailureFigures& figures = *outcome.failures;
  EXPECT_EQ("all workers have done their iterations", outcome.ending);
  EXPECT_EQ(1u, figures.failures);
  EXPECT_EQ(1u, figures.returns);
  EXPECT_EQ(40, outcome.points.back().updates);
  EXPECT_EQ(40, outcome.workers[0].iterations);
  EXPECT_EQ(40, outcome.workers[1].iterations);
  // It is away for 100 ms, and until the next generation begins: ten iterations, or eleven.
  EXPECT_NEAR(40 - 11, static_cast<double>(outcome.workers[2].iterations), 1.1);
  const auto finished = static_cast<double>(outcome.points.back().iterations);
  EXPECT_EQ(finished + 1, figures.computed);
  EXPECT_EQ(finished, figures.in_params);
  EXPECT_EQ(kLearningRows * finished, static_cast<double>(outcome.counters.contributions));
  EXPECT_NEAR(3 - 0.105 / outcome.seconds, figures.mean_workers, 0.05);
  EXPECT_NEAR(3 * 40, figures.possible, 2);
  ASSERT_EQ(1u, figures.stops_by_failures.size());
  ASSERT_EQ(1u, figures.stops_by_returns.size());
  EXPECT_LT(figures.stops_by_failures[0], 0.005) << "some latencies";
  EXPECT_LT(figures.stops_by_returns[0], 0.005);
}

TEST(Failures, OthersWaitUntilTheCoordinatorNotesALoss) {
  const Outcome outcome =
      run(digits_solver("fail_silent", "max_iter: 40"), three("at: 0.0575 unnoticed: 0.2"), {});
  ASSERT_EQ(1u, outcome.failures->stops_by_failures.size());
  EXPECT_NEAR(0.2, outcome.failures->stops_by_failures[0], 0.01);
  EXPECT_NEAR(0.2 + 40 * 0.0103, outcome.seconds, 0.02);
  EXPECT_EQ(0u, outcome.failures->returns);
  EXPECT_NEAR(3 - (outcome.seconds - 0.0575) / outcome.seconds, outcome.failures->mean_workers,
              0.01);
  const Outcome async =
      run(with(digits_solver("fail_silent_async", "max_iter: 40"), "type: 'async'"),
          three("at: 0.0575 unnoticed: 0.2"), {});
  EXPECT_LT(async.seconds, 40 * 0.0115) << "the others go on";
}

// The batch of all stays the same, whoever reads it: those that are left read the lost worker's
// part, and the one in its place takes it back.
TEST(Failures, TheDataAreDividedAnew) {
  SolverParameter param = digits_solver("fail_global", "max_iter: 40 batch_semantics: GLOBAL");
  param.mutable_net_param()->mutable_layer(0)->mutable_data_param()->set_batch_size(12);
  const Outcome outcome = run(param, three("at: 0.0575 repair: 0.1"), {});
  EXPECT_EQ(1u, outcome.failures->returns);
  EXPECT_EQ(12 * 40 - 4, outcome.points.back().samples) << "without the step that was cut off";
  EXPECT_GT(outcome.seconds, 40 * 0.01 + 6 * 0.005) << "two workers have larger batches";
}

TEST(Failures, EverySchemeTrainsOnAndGivesTheSameBitsOnAnyNumberOfThreads) {
  for (const char* scheme : kSchemes) {
    SCOPED_TRACE(scheme);
    const SolverParameter param = with(digits_solver("fail_schemes", "max_iter: 60"), scheme);
    std::vector<Outcome> runs;
    for (const int threads : {1, 3})
      runs.push_back(run(param, three("at: 0.0575 at: 0.31 repair: 0.1"),
                         {.test_every = 0.1, .threads = threads}));
    const Outcome& one = runs[0];
    EXPECT_EQ(one.weights, runs[1].weights);
    EXPECT_EQ(one.seconds, runs[1].seconds);
    EXPECT_EQ(one.version_staleness, runs[1].version_staleness);
    EXPECT_EQ(one.failures->in_params, runs[1].failures->in_params);
    ASSERT_GE(one.points.size(), 4u);
    EXPECT_LT(one.points.back().loss, 0.7 * one.points[1].loss);
    EXPECT_EQ("all workers have done their iterations", one.ending);
    EXPECT_EQ(2u, one.failures->failures);
    EXPECT_EQ(2u, one.failures->returns);
    EXPECT_GE(one.failures->computed, one.failures->in_params);
    EXPECT_GT(one.failures->in_params, 0.6 * one.failures->computed);
    EXPECT_GT(one.failures->possible, one.failures->in_params);
    EXPECT_GT(one.workers[2].iterations, 20) << "those in its place have taken part";
    for (const simulate::WorkerFigures& worker : one.workers)
      EXPECT_LE(worker.compute + worker.rows + worker.others, one.seconds + 1e-6);
  }
}

// Tasks that a lost worker has left are done by the others.
TEST(Failures, SharedIterationsAreAllDone) {
  const SolverParameter param =
      with(digits_solver("fail_shared", "max_iter: 50"), "type: 'async' share_iterations: true");
  const Outcome outcome = run(param, three("at: 0.0575"), {});
  EXPECT_NEAR(3 * 50, static_cast<double>(outcome.points.back().iterations), 1);
  EXPECT_LE(outcome.workers[2].iterations, 6);
  EXPECT_GT(outcome.workers[0].iterations, 70);
}

// Whichever worker it is, and all of them one after the other: the chief, who gives the servers the
// params of a generation, too.
TEST(Failures, EveryWorkerMayFail) {
  for (const char* scheme :
       {"type: 'bsp'", "type: 'async'", "type: 'local_steps' local_steps: 2"}) {
    SCOPED_TRACE(scheme);
    const SolverParameter param = with(digits_solver("fail_chief", "max_iter: 60"), scheme);
    std::string cluster = "server { count: 2 } card { bandwidth: 1e8 latency_ms: 0.1 } ";
    for (const double at : {0.0475, 0.1475, 0.2475})
      cluster += str("worker { compute { ms: 10 } failure { at: ", at, " at: ", at + 0.3,
                     " repair: 0.03 } } ");
    const Outcome outcome = run(param, cluster, {.test_every = 0.1});
    EXPECT_EQ(6u, outcome.failures->failures);
    EXPECT_EQ(6u, outcome.failures->returns);
    EXPECT_LT(outcome.points.back().loss, 0.7 * outcome.points[1].loss);
    EXPECT_EQ("all workers have done their iterations", outcome.ending);
  }
}

// Here the second worker is lost in each moment of the change that the loss of the first makes.
TEST(Failures, AChiefThatFailsAsAGenerationBeginsIsFollowed) {
  const SolverParameter param = digits_solver("fail_moment", "max_iter: 20");
  for (double at = 0.0475; at < 0.063; at += 0.0002) {
    const Outcome outcome = run(
        param,
        str("worker { compute { ms: 10 } failure { at: 0.0475 } } worker { compute { ms: 10 } "
            "failure { at: ",
            at, " } } worker { compute { ms: 10 } } server { count: 2 } card { latency_ms: 0.3 }"),
        {});
    EXPECT_EQ(2u, outcome.failures->failures);
    EXPECT_EQ("all workers have done their iterations", outcome.ending) << at;
  }
}

TEST(Failures, AJobEndsWithItsLastWorker) {
  const Outcome outcome = run(
      digits_solver("fail_all", "max_iter: 60"),
      "worker { count: 3 compute { ms: 10 } failure { at: 0.0575 repair: 10 } } server { }", {});
  EXPECT_EQ("no worker is left", outcome.ending);
  EXPECT_EQ(3u, outcome.failures->failures);
  EXPECT_EQ(0u, outcome.failures->returns);
  EXPECT_LT(outcome.seconds, 0.07);
}

// A process that asks to join as the job ends finds it done.
TEST(Failures, NobodyJoinsAJobThatIsDone) {
  const SolverParameter param = digits_solver("fail_late", "max_iter: 20");
  const double end = run(param, three("at: 0.0575"), {}).seconds;
  for (const double before : {0.012, 0.003, 0.001, 0.0003, 0.0001}) {
    const Outcome outcome =
        run(param, three(str("at: 0.0575 repair: ", end - 0.0575 - before)), {});
    EXPECT_EQ("all workers have done their iterations", outcome.ending) << before;
    EXPECT_EQ(20, outcome.workers[0].iterations);
  }
}

// Times are drawn by the seed, for each worker; a process may fail before it has joined.
TEST(Failures, AreDrawnByTheSeed) {
  const std::string cluster =
      "worker { count: 5 compute { ms: 10 distribution: UNIFORM jitter: 0.3 } failure { mtbf: 0.4 "
      "repair: 0.05 unnoticed: 0.004 } } server { count: 2 } card { bandwidth: 1e7 latency_ms: 0.2 "
      "jitter_ms: 0.1 }";
  for (const char* scheme : {"type: 'bsp'", "type: 'ssp' staleness: 2", "type: 'async'"}) {
    SCOPED_TRACE(scheme);
    const SolverParameter param = with(digits_solver("fail_drawn", "max_iter: 120"), scheme);
    const Outcome one = run(param, cluster, {.seed = 5, .test_every = 0.3}),
                  same = run(param, cluster, {.seed = 5, .test_every = 0.3, .threads = 3}),
                  other = run(param, cluster, {.seed = 6});
    EXPECT_EQ(one.weights, same.weights);
    EXPECT_EQ(one.seconds, same.seconds);
    EXPECT_NE(one.seconds, other.seconds);
    const FailureFigures& figures = *one.failures;
    EXPECT_GT(figures.failures, 6u);
    EXPECT_LE(figures.returns, figures.failures);
    EXPECT_GE(figures.returns + 5, figures.failures);
    EXPECT_LT(one.points.back().loss, 0.7 * one.points[1].loss);
    // A step is cut off by each failure, but for those before a process took part; some that were
    // finished are in no params.
    const auto finished = static_cast<double>(one.points.back().iterations);
    EXPECT_LE(figures.computed, finished + static_cast<double>(figures.failures));
    EXPECT_GT(figures.computed, finished);
    EXPECT_LT(figures.in_params, figures.computed);
    EXPECT_GE(figures.in_params, finished - 2 * static_cast<double>(figures.failures));
    EXPECT_NEAR(static_cast<double>(one.counters.contributions) / kLearningRows, figures.in_params,
                1e-6);
    EXPECT_LT(figures.mean_workers, 5);
    EXPECT_GT(figures.mean_workers, 3);
    EXPECT_GT(figures.possible, figures.computed);
    if (std::string(scheme) == "type: 'bsp'") {
      EXPECT_GT(sum_of(figures.stops_by_failures), 0.004) << "until they are noted";
    }
  }
}

// Sums among workers are interrupted, and made again without the lost one.
TEST(Failures, WorkersThatAddUpAmongThemselvesMayFail) {
  for (const char* way : {"RING", "TREE"}) {
    SCOPED_TRACE(way);
    const SolverParameter param =
        digits_solver("fail_ring", str("max_iter: 60 exchange { way: ", way, " }"));
    const Outcome outcome = run(param, three("at: 0.0575 repair: 0.1"), {.test_every = 0.1});
    EXPECT_EQ("all workers have done their iterations", outcome.ending);
    EXPECT_EQ(1u, outcome.failures->returns);
    EXPECT_LT(outcome.points.back().loss, 0.7 * outcome.points[1].loss);
    EXPECT_GE(outcome.failures->computed, outcome.failures->in_params + 1);
    EXPECT_GT(outcome.failures->in_params, 3 * 60 - 20);
  }
}

TEST(Failures, GoThroughPhases) {
  const SolverParameter param =
      in_phases(digits_solver("fail_phases", "max_iter: 60"),
                {"type: 'bsp' iterations: 20", "type: 'async' iterations: 20",
                 "type: 'local_steps' local_steps: 2"});
  const Outcome outcome =
      run(param, three("at: 0.0575 at: 0.25 at: 0.5 repair: 0.05"), {.test_every = 0.1});
  EXPECT_EQ("all workers have done their iterations", outcome.ending);
  EXPECT_EQ(3u, outcome.failures->returns);
  EXPECT_LT(outcome.points.back().loss, 0.7 * outcome.points[1].loss);
}

TEST(Failures, AWorkerThatMayFailAndDoesNotChangesNothing) {
  for (const char* scheme : {"type: 'bsp'", "type: 'async'"}) {
    const SolverParameter param = with(digits_solver("fail_never", "max_iter: 20"), scheme);
    const Outcome outcome = run(param, three("at: 1000 repair: 1"), {}),
                  usual = run(param,
                              "worker { count: 3 compute { ms: 10 } } server { count: 2 } card { "
                              "bandwidth: 1e8 latency_ms: 0.1 }",
                              {});
    EXPECT_EQ(usual.weights, outcome.weights);
    EXPECT_EQ(usual.seconds, outcome.seconds);
    EXPECT_FALSE(usual.failures);
    EXPECT_EQ(outcome.failures->computed, outcome.failures->in_params);
    EXPECT_DOUBLE_EQ(3, outcome.failures->mean_workers);
  }
}

TEST(Failures, AProcessThatJoinsWritesMetricsOfItsOwn) {
  const std::string out = fresh_directory("fail_files");
  run(digits_solver("fail_files_data", "max_iter: 30"), three("at: 0.0575 repair: 0.05"),
      {.test_every = 0.1, .out = out});
  EXPECT_EQ((std::vector<std::string>{"metrics.0.jsonl", "metrics.1.jsonl", "metrics.2.jsonl",
                                      "metrics.5.jsonl"}),
            entries(out));
}

TEST(Failures, RefusesWhatCannotBe) {
  const struct {
    const char* failure;
    const char* why;
  } cases[] = {{"", "a failure needs mtbf"},
               {"repair: 3", "a failure needs mtbf"},
               {"mtbf: 0", "mtbf is 0; it must be above 0"},
               {"mtbf: 1e9", "mtbf takes"},
               {"at: -1", "at is -1"},
               {"mtbf: 1 repair: -1", "repair is -1"},
               {"mtbf: 1 unnoticed: nan", "unnoticed is nan"}};
  for (const auto& c : cases)
    EXPECT_HAS(message_of([&] { simulate::parse_cluster(three(c.failure), "c"); }), c.why);
  EXPECT_HAS(message_of([] {
               simulate::parse_cluster("worker { compute { ms: 1 } failure { mtbf: 1 } }", "c");
             }),
             "c, worker { } 1: failure { } of a worker with a server in its process");
  const auto refused = [](const std::string& more, bool dry) {
    return message_of([&] {
      run(digits_solver("fail_refused", "max_iter: 2 " + more), three("mtbf: 1"), {.dry = dry});
    });
  };
  EXPECT_HAS(refused("", true), "and --dry has one plan alone");
  EXPECT_HAS(refused("on_lost: STOP", false), "on_lost: STOP and min_workers end a job");
  EXPECT_HAS(refused("min_workers: 2", false), "on_lost: STOP and min_workers end a job");
}

// Two workers make a step a second, and each step is two updates. One is lost after 3.5 s, and the
// other goes on alone from 4.2 s, with the next update at 6 s; from 8 s there is another.
TEST(FailureAccount, AddsUpWhatItIsTold) {
  using namespace std::chrono_literals;
  simulate::FailureAccount account(2);
  for (int second = 1; second <= 3; ++second) {
    account.updated(second * 1s, 2 * second);
    for (const std::size_t worker : {0, 1}) account.step(worker, (second - 1) * 1s, second * 1s);
  }
  account.lose(3500ms, 0);
  account.updated(4s, 6);
  account.trains(0);
  account.trains(1);
  account.updated(6s, 7);
  account.step(0, 3s, 6s);
  const std::size_t number = account.asks();
  account.updated(7s, 8);
  account.joins(number, 8s, 2);
  account.trains(2);
  account.updated(9s, 9);
  account.gives_up(account.asks());
  account.updated(10s, 10);
  account.step(0, 9s, 10s);
  account.add_steps(9, 7);
  account.add_steps(4, 3);
  const FailureFigures figures = account.figures(10s, {10, 10});
  EXPECT_EQ(2u, figures.failures);
  EXPECT_EQ(1u, figures.returns);
  EXPECT_DOUBLE_EQ((2 * 3.5 + 4.5 + 2 * 2) / 10, figures.mean_workers);
  // Updates come every half second in the mean, but the last one: (2 * 1 + 1) s for 5 of them.
  ASSERT_EQ(1u, figures.stops_by_failures.size());
  ASSERT_EQ(1u, figures.stops_by_returns.size());
  EXPECT_DOUBLE_EQ(3 - 0.6, figures.stops_by_failures[0]);
  EXPECT_DOUBLE_EQ(2 - 0.6, figures.stops_by_returns[0]);
  EXPECT_EQ(13, figures.computed);
  EXPECT_EQ(10, figures.in_params);
  EXPECT_DOUBLE_EQ(20, figures.possible);
}

}  // namespace
}  // namespace shoal::test::failures_test
