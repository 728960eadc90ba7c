// Tests jobs in virtual time: the same seed gives the same bits, workers learn as real ones do, and
// a run writes its files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "shoal/ops/blas_kernels.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/io.h"
#include "shoal/proto/layers.pb.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulation.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/job_processes.h"
#include "support/simulation_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::simulation_test {
namespace {

using simulate::Outcome;
using simulation::digits_solver;
using simulation::in_phases;
using simulation::run;
using simulation::with;

std::vector<float> weights_of(const std::string& model) {
  std::vector<float> weights;
  const NetParameter net = read_weights(model);
  for (const LayerParameter& layer : net.layer())
    for (const BlobProto& blob : layer.blobs())
      weights.insert(weights.end(), blob.data().begin(), blob.data().end());
  return weights;
}

const std::string kUneven =
    "worker { count: 2 compute { ms: 10 distribution: LOGNORMAL jitter: 0.4 } card { bandwidth: "
    "1e6 latency_ms: 0.2 jitter_ms: 0.3 } }"
    "worker { compute { ms: 25 distribution: EXPONENTIAL jitter: 0.5 } card { bandwidth: 5e5 } "
    "slowdown { from: 0.05 to: 0.1 factor: 3 } } "
    "server { count: 2 ns_per_byte: 20 } ";

TEST(Simulation, TheSameSeedGivesTheSameBitsOnAnyNumberOfThreads) {
  const SolverParameter param = digits_solver("sim_same", "max_iter: 15");
  for (const char* scheme : {"type: 'bsp'", "type: 'ssp' staleness: 2", "type: 'async'"}) {
    std::vector<Outcome> runs;
    for (const int threads : {1, 3, 3})
      runs.push_back(
          run(with(param, scheme), kUneven, {.seed = 7, .test_every = 0.05, .threads = threads}));
    for (std::size_t i = 1; i < runs.size(); ++i) {
      EXPECT_EQ(runs[0].weights, runs[i].weights) << scheme;
      EXPECT_EQ(runs[0].seconds, runs[i].seconds) << scheme;
      EXPECT_EQ(runs[0].version_staleness, runs[i].version_staleness) << scheme;
      ASSERT_EQ(runs[0].points.size(), runs[i].points.size()) << scheme;
      for (std::size_t p = 0; p < runs[0].points.size(); ++p)
        EXPECT_EQ(runs[0].points[p].loss, runs[i].points[p].loss) << scheme << p;
    }
    const Outcome other = run(with(param, scheme), kUneven, {.seed = 8});
    EXPECT_NE(runs[0].seconds, other.seconds) << scheme;
  }
}

TEST(Simulation, BspLearnsWhatRealWorkersLearnToTheBit) {
  const SolverParameter param = digits_solver("sim_real", "max_iter: 12");
  const JobResult real =
      train(param, {.workers = 3, .servers = 2, .over_tcp = true, .scheme = "bsp", .stops = {12}});
  ASSERT_TRUE(real.ok()) << real.why();
  EXPECT_EQ(real.at(0), run(param, kUneven, {}).weights);
  EXPECT_EQ(real.at(0), run(param, "worker { count: 3 compute { ms: 1 } }", {}).weights)
      << "with servers in the workers";
}

TEST(Simulation, RowsPlacedByTimeLearnTheSameSooner) {
  const SolverParameter param = digits_solver("sim_placed", "max_iter: 8");
  const std::string uneven =
      "worker { count: 2 compute { ms: 1 } } server { card { bandwidth: 1e5 } } server { card { "
      "bandwidth: 1e6 } }";
  const Outcome even = run(param, uneven, {}), placed = run(param, uneven, {.by_time = true});
  EXPECT_EQ(even.weights, placed.weights);
  EXPECT_LT(placed.seconds, 0.4 * even.seconds);
}

TEST(Simulation, LearnsUnderEverySchemeAndCountsWhatItDoes) {
  const SolverParameter param = digits_solver("sim_learns", "max_iter: 60 iter_size: 2");
  for (const char* scheme : {"type: 'bsp'", "type: 'ssp' staleness: 1", "type: 'async'"}) {
    const Outcome outcome = run(with(param, scheme), kUneven, {.test_every = 0.25});
    ASSERT_GE(outcome.points.size(), 4u) << scheme;
    EXPECT_LT(outcome.points.back().loss, 0.7 * outcome.points[1].loss) << scheme;
    EXPECT_EQ(60 * 3, outcome.points.back().iterations) << scheme;
    EXPECT_EQ(60 * 3 * 2 * 4, outcome.points.back().samples) << scheme;
    for (const simulate::WorkerFigures& worker : outcome.workers) {
      EXPECT_EQ(60, worker.iterations);
      EXPECT_NEAR(worker.seconds, worker.compute + worker.rows + worker.others, 1e-6) << scheme;
    }
  }
}

// Weights by steps add up to more than 1, by which only a move of params may be multiplied.
TEST(Simulation, RunningSumsAreAveragedHoweverParamsAreWeighed) {
  SolverParameter param =
      digits_solver("sim_steps", "max_iter: 30 test_iter: 2 test_interval: 1000000");
  LayerParameter& relu = *param.mutable_net_param()->mutable_layer(2);
  relu.set_type("BatchNorm");
  relu.mutable_batch_norm_param()->set_moving_average_fraction(0.9f);
  const Outcome outcome =
      run(with(param, "type: 'esync' aggregation: STEPS"),
          "worker { compute { ms: 10 } } worker { compute { ms: 1000 } } server {}",
          {.test_every = 0.5});
  ASSERT_GE(outcome.points.size(), 5u);
  for (const auto& point : outcome.points)
    for (const TestScore& score : point.scores)
      EXPECT_TRUE(std::isfinite(score.mean)) << "after " << point.seconds << " s";
}

TEST(Simulation, WritesTheFilesOfARun) {
  const std::string out = fresh_directory("sim_files");
  const Outcome outcome =
      run(digits_solver("sim_files_data", "max_iter: 5"), kUneven, {.test_every = 0.1, .out = out});
  EXPECT_EQ((std::vector<std::string>{"metrics.0.jsonl", "metrics.1.jsonl", "metrics.2.jsonl"}),
            entries(out));
  const std::string chief = get_file(out + "/metrics.0.jsonl"),
                    other = get_file(out + "/metrics.2.jsonl");
  EXPECT_HAS(chief, "\"simulated\"");
  EXPECT_HAS(chief, "\"display\"");
  EXPECT_EQ(1 + 5, std::ranges::count(other, '\n'));
}

// Phases are a real run's: the rows at the end are the same, and a phase takes as long as by
// itself.
TEST(Simulation, PhasesFollowEachOtherAsInARealJob) {
  const SolverParameter param =
      in_phases(digits_solver("sim_phases", "max_iter: 11"),
                {"type: 'bsp' iterations: 5", "type: 'local_steps' local_steps: 3"});
  SolverParameter saving = param;
  saving.set_snapshot_after_train(true);
  saving.set_snapshot_prefix(fresh_directory("sim_phases_model") + "/model");
  const auto outcomes = run_workers(3, 2, [&](int, table::Table& table) -> Status {
    const Result<Ending> ending =
        parallel::run(parallel::read_job_spec(saving, "x"), parallel::RunOptions(), &table);
    return ending.ok() ? Status() : Status(ending.error());
  });
  for (const Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  const std::vector<float> rows = weights_of(saving.snapshot_prefix() + "_iter_11.caffemodel");
  const Outcome outcome = run(param, kUneven, {});
  EXPECT_EQ(rows, outcome.weights);
  EXPECT_EQ("bsp, then local_steps local_steps=3", outcome.scheme);
  EXPECT_EQ(3 * (5 + 6 * 3), outcome.points.back().iterations);

  const SolverParameter four = digits_solver("sim_phases", "max_iter: 40");
  const std::vector<std::string> phases = {"type: 'async' share_iterations: true iterations: 15",
                                           "type: 'drift_barrier' max_advance: 2 iterations: 10",
                                           "type: 'elastic' local_steps: 2"};
  for (const bool dry : {false, true}) {
    const auto all = or_throw(simulate::simulate(
        in_phases(four, phases), simulate::parse_cluster(kUneven, "cluster"), {.dry = dry}));
    EXPECT_EQ(3 * (15 + 10 + 15 * 2), all.points.back().iterations);
    EXPECT_EQ(3 * 40, all.points.back().updates) << "those of all phases together";
    EXPECT_EQ(3 * 40 * (all.counters.contributions / 120), all.counters.contributions)
        << "each worker's every push counts once";
    EXPECT_GT(all.counters.contributions, 0u);
  }
}

// A task of local steps is one update of the params, whether servers make it or each worker does.
TEST(Simulation, AnUpdateIsCountedOnceByWhicheverWay) {
  for (const bool dry : {false, true})
    for (const char* exchange : {"way: TABLE", "way: RING"}) {
      SolverParameter param =
          with(digits_solver("sim_updates", str("max_iter: 7 exchange { ", exchange, " }")),
               "type: 'local_steps' local_steps: 3");
      const auto last =
          or_throw(
              simulate::simulate(param, simulate::parse_cluster(kUneven, "cluster"), {.dry = dry}))
              .points.back();
      EXPECT_EQ(7, last.updates) << exchange;
      EXPECT_EQ(3 * 7 * 3, last.iterations) << exchange;
    }
}

// The slow worker's pushes are late and dropped: with iterations of its own it goes on long after
// the others. Shared, its iterations are done by them.
TEST(Simulation, BackupWorkersNeedNotComeToTheEndThemselves) {
  const SolverParameter solver = digits_solver("sim_backup", "max_iter: 40");
  const auto last = [&](const std::string& more) {
    return run(with(solver, "type: 'sync_backup' backup: 1 " + more),
               "worker { count: 3 compute { ms: 10 } } worker { compute { ms: 200 } }", {})
        .points.back();
  };
  const auto own = last(""), shared = last("share_iterations: true");
  EXPECT_EQ(own.iterations, 4 * 40);
  EXPECT_EQ(shared.iterations, 4 * 40);
  EXPECT_GT(own.seconds, 40 * 0.2);
  EXPECT_LT(shared.seconds, own.seconds / 8);
}

// Checks lines as docs/reference/metrics.md has them, in virtual seconds: a worker's own seconds
// add up, and staleness and drops are the scheme's.
TEST(Simulation, MetricsSayWhatThoseOfARealRunDo) {
  const auto lines_of = [](const std::string& scheme, int worker) {
    const std::string out = fresh_directory("sim_metrics");
    run(with(digits_solver("sim_metrics_data", "max_iter: 12"), scheme),
        "worker { count: 2 compute { ms: 10 } } worker { compute { ms: 40 } } card { bandwidth: "
        "1e6 }",
        {.out = out});
    return get_file(str(out, "/metrics.", worker, ".jsonl"));
  };
  const auto sum_of = [](const std::string& lines, const std::string& member) {
    double sum = 0;
    for (std::size_t at = lines.find("\"" + member + "\""); at != std::string::npos;
         at = lines.find("\"" + member + "\"", at + 1))
      sum += std::strtod(lines.c_str() + at + member.size() + 3, nullptr);
    return sum;
  };
  const std::string slow = lines_of("type: 'ssp' staleness: 1", 2),
                    fast = lines_of("type: 'ssp' staleness: 1", 0);
  EXPECT_NEAR(12 * 0.04, sum_of(slow, "compute"), 1e-6);
  EXPECT_NEAR(12 * 0.01, sum_of(fast, "compute"), 1e-6);
  EXPECT_GT(sum_of(fast, "row_wait"), 0.2);
  EXPECT_HAS(fast, "\"reads\":{\"") << "its server has answered some";
  const std::string barred = lines_of("type: 'drift_barrier' max_advance: 1", 0);
  EXPECT_GT(sum_of(barred, "row_wait"), 0.2) << "a barrier is waited for";
  EXPECT_LT(sum_of(barred, "other"), 0.02) << "and is no test or snapshot";
  EXPECT_EQ(12 * 4, sum_of(slow, "samples"));
  EXPECT_EQ(0, sum_of(fast, "drops"));
  EXPECT_GT(sum_of(lines_of("type: 'sync_backup' backup: 1", 2), "drops"), 0) << "of the slow one";
  EXPECT_HAS(lines_of("type: 'local_steps' local_steps: 3", 1), "\"local_steps\":3");
}

// Real processes end with the same weights as the simulation, and the tool prints its results.
// scripts/bench_simulated.py compares the times.
TEST(Simulation, RealProcessesThatEmulateDoWhatTheToolSays) {
  if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR is not set";
  const std::string folder = fresh_directory("sim_tool"), solver = folder + "/solver.prototxt";
  SolverParameter param = digits_solver("sim_tool_data", "max_iter: 8");
  param.set_snapshot_after_train(true);
  param.set_snapshot_prefix(folder + "/model");
  put_file(solver, to_text(param));
  put_file(folder + "/cluster", "worker { count: 2 compute { ms: 15 } } card { bandwidth: 1e6 }");

  // The bits are compared with this process's, which did not start itself again for other kernels.
  const bool differs = !ops::better_blas_kernels().empty();
  if (differs) ::setenv("OPENBLAS_CORETYPE", "Prescott", 0);
  JobProcesses job(folder, "bb");
  job.start_all(solver, {"--emulate_step_ms=15", "--throttle=1e6"});
  if (differs) ::unsetenv("OPENBLAS_CORETYPE");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Ran ran = job.wait(rank).ran;
    EXPECT_EQ(0, ran.code) << ran.err;
  }
  const Outcome outcome =
      or_throw(simulate::simulate(param, simulate::read_cluster(folder + "/cluster"), {}));
  EXPECT_EQ(weights_of(folder + "/model_iter_8.caffemodel"), outcome.weights);

  const std::vector<std::string> tool = {tools_dir() + "/simulate", "--solver=" + solver,
                                         "--cluster=" + folder + "/cluster"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = tool;
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  const Ran real =
      with({"--scheme=ssp", "--staleness=1", "--out=" + folder + "/out", "--test_every=0.05"});
  EXPECT_EQ(0, real.code) << real.err;
  EXPECT_HAS(real.out, "s] Iteration 16, ");
  EXPECT_HAS(real.out, get_file(folder + "/out/summary.md"));
  const Ran dry = with({"--dry"}), scaling = with({"--dry", "--scaling=1,2"});
  EXPECT_EQ(0, dry.code) << dry.err;
  EXPECT_HAS(dry.out, "| bsp | ");
  EXPECT_EQ(0, scaling.code) << scaling.err;
  EXPECT_HAS(scaling.out, "\n| 2 | ");
  EXPECT_EQ(2, with({"--dry", "--target=accuracy 1"}).code);
  EXPECT_EQ(2, with({"--scaling=2"}).code);
  const struct {
    std::vector<std::string> flags;
    const char* why;
  } refused[] = {
      {{"--seconds=-5"}, "--seconds is -5; it must be 0 or more"},
      {{"--samples=nan"}, "--samples is nan"},
      {{"--updates=-1"}, "--updates is -1"},
      {{"--test_every=-1"}, "--test_every is -1"},
      {{"--num_clients=8"}, "--num_clients is about real processes; the file of --cluster"},
      {{"--throttle=1e6"}, "--throttle is about real processes"},
      {{"--dry", "--scaling=2x"}, "'2x' is no number of workers"},
      {{"--dry", "--scaling=,"}, "--scaling=, has no number of workers"},
      {{"--dry", "--scaling=2", "--updates=1"}, "--scaling times whole iterations"},
      {{"--dry", "--scaling=2", "--scheme=async"}, "of bsp, and the scheme is 'async'"}};
  for (const auto& each : refused) {
    const Ran ran = with(each.flags);
    EXPECT_EQ(2, ran.code) << each.why;
    EXPECT_HAS(ran.err, each.why);
    EXPECT_EQ("", ran.out) << each.why;
  }
  EXPECT_EQ(scaling.out, with({"--dry", "--scaling=1,2", "--exchange=RING"}).out);
  param.clear_max_iter();
  put_file(solver, to_text(in_phases(param, {"type: 'bsp' iterations: 1",
                                             "type: 'ssp' staleness: 1 iterations: 1"})));
  const Ran in_phases_alone = with({});
  EXPECT_HAS(in_phases_alone.out, "s] Iteration 4, ");
  EXPECT_EQ("", in_phases_alone.err) << "no warning that nothing is trained";
  put_file(solver, to_text(param));
  EXPECT_HAS(with({}).err, "max_iter is not given: nothing is trained");
  const Ran no_scheme = with({"--scheme=spp"});
  EXPECT_EQ(2, no_scheme.code);
  EXPECT_HAS(no_scheme.err, "flags: scheme 'spp': no scheme is named 'spp'; did you mean 'ssp'?");
}

TEST(Simulation, RefusesAClusterThatMakesNoSense) {
  const struct {
    const char* text;
    const char* why;
  } cases[] = {{"server { }", "there is no worker"},
               {"worker { server: false compute { ms: 1 } }", "there is no server"},
               {"worker { compute { ms: 1 } } worker { }",
                "cluster, worker { } 2: a worker's compute needs ms"},
               {"worker { compute { ms: -1 } }", "ms is -1"},
               {"worker { compute { ms: 1 speed: 0 } }", "speed is 0"},
               {"worker { compute { ms: inf } }", "an iteration of a worker takes inf s; at most"},
               {"worker { compute { ms: 1 speed: 1e-300 } }", "an iteration of a worker takes"},
               {"worker { compute { ms: 1 } card { latency_ms: 1e300 } }", "latency_ms takes"},
               {"worker { compute { ms: 1 } card { bandwidth: 1e-300 } }", "bandwidth is 1e-300"},
               {"worker { compute { ms: 1 } slowdown { from: 2 to: 1 } }", "from 2 to 1"},
               {"worker { compute { ms: 1 } slowdown { pause: true } }", "needs an end"},
               {"worker { compute { ms: 1 distribution: UNIFORM jitter: 2 } }", "jitter is 2"},
               {"worker { compute { trace: '/no/such' } }", "/no/such"},
               {"worker { count: 2 compute { ms: 1 } } server { count: 65534 }",
                "cluster, server { } 1: count is 65534; a cluster has at most 65535 processes"},
               {"worker { comput { } }", "cluster:1:"}};
  for (const auto& c : cases) {
    try {
      simulate::parse_cluster(c.text, "cluster");
      ADD_FAILURE() << c.text;
    } catch (const ConfigError& error) {
      EXPECT_HAS(error.what(), c.why);
    }
  }
  for (const char* target : {"accuracy", "accuracy nan", "accuracy 1x", "accuracy inf"})
    EXPECT_THROW(simulate::parse_target(target), ConfigError) << target;
  const SolverParameter param = digits_solver("sim_refuses");
  EXPECT_HAS(
      message_of([&] {
        run(with(digits_solver("sim_by_speed", "max_iter: 60"), "type: 'grouped' group_by: SPEED"),
            "worker { count: 3 compute { ms: 1 } }", {.dry = true});
      }),
      "group_by: SPEED trains for a while and measures the workers, and --dry does not");
  EXPECT_THROW(run(with(param, "type: 'no such'"), "worker { compute { ms: 1 } }", {}),
               ConfigError);
  EXPECT_THROW(
      run(param, "worker { compute { ms: 1 } }", {.target = simulate::parse_target("acuracy 1")}),
      ConfigError);
}

}  // namespace
}  // namespace shoal::test::simulation_test
