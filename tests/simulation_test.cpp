// Jobs in virtual time: the same seed gives the same bits, schemes take as long as arithmetic says,
// and what is learned is what real workers learn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shoal/parallel/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulation.h"
#include "support/cluster.h"
#include "support/data_files.h"
#include "support/job_processes.h"
#include "support/job_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::simulation_test {
namespace {

using simulate::Outcome;
using simulate::SimulationOptions;

// Batches of 4 of 40 records, divided among the workers; two layers that learn.
SolverParameter digits_solver(const std::string& folder, const std::string& more = "") {
  const std::string path = fresh_directory(folder) + "/digits";
  make_digits(path);
  SolverParameter param = parse_solver(
      "base_lr: 0.02 momentum: 0.9 lr_policy: 'fixed' random_seed: 3 display: 0 "
      "snapshot_after_train: false " +
          (more.empty() ? "max_iter: 12" : more),
      "job");
  const std::string data = "data_param { source: '" + path +
                           "' backend: DATUMFILE batch_size: 4 shared_file_system: true } "
                           "transform_param { scale: 0.01 } ";
  *param.mutable_net_param() =
      parse_net("layer { name: 'data' type: 'Data' top: 'data' top: 'label' " + data +
                    "}"
                    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1' "
                    "inner_product_param { num_output: 16 weight_filler { type: 'xavier' } } }"
                    "layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }"
                    "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2' "
                    "inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }"
                    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' "
                    "top: 'loss' }",
                "job.prototxt");
  return param;
}

// One layer, one row of 36 x 10 numbers, so that a server's answers begin when all of a push is
// there.
SolverParameter one_row_solver(const std::string& folder, int max_iter) {
  SolverParameter param = digits_solver(folder);
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: '" +
          param.net_param().layer(0).data_param().source() +
          "' backend: DATUMFILE batch_size: 4 shared_file_system: true } transform_param { scale: "
          "0.01 } }"
          "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
          "num_output: 10 bias_term: false weight_filler { type: 'xavier' } } }"
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }",
      "job.prototxt");
  param.set_max_iter(max_iter);
  return param;
}

// With these phases, each as in `scheme { }`.
SolverParameter in_phases(SolverParameter param, const std::vector<std::string>& schemes) {
  for (const std::string& scheme : schemes)
    param.MergeFrom(parse_solver("scheme { " + scheme + " }", "schemes"));
  return param;
}
SolverParameter with(SolverParameter param, const std::string& scheme) {
  return in_phases(std::move(param), {scheme});
}

Outcome run(const SolverParameter& param, const std::string& cluster,
            const SimulationOptions& options) {
  return or_throw(simulate::simulate(param, simulate::parse_cluster(cluster, "cluster"), options));
}

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

// Without overlap and with a network of its own for each pair an iteration is: compute, the row to
// the server, the row back.
TEST(Simulation, BspTakesAsLongAsTheFormulaSays) {
  constexpr double kCompute = 0.02, kBandwidth = 1e5, kLatency = 0.003, kRow = 36 * 10 * 4;
  const auto seconds = [&](int iterations, const std::string& sharing, double ns_per_byte = 0) {
    const std::string cluster =
        str("worker { count: 4 compute { ms: 20 } } server { ns_per_byte: ", ns_per_byte,
            " } overlap: false sharing: ", sharing, " card { bandwidth: 1e5 latency_ms: 3 }");
    return run(one_row_solver("sim_formula", iterations), cluster, {}).seconds;
  };
  const double push = (kRow + 24 + 4 + 8 + 8 + 1 + 4 + 4 + 4 + 1) / kBandwidth,
               answer = (kRow + 24 + 4 + 8 + 8 + 1 + 4 + 1) / kBandwidth;
  EXPECT_NEAR(kCompute + push + answer + 2 * kLatency,
              (seconds(20, "PER_PAIR") - seconds(10, "PER_PAIR")) / 10, 1e-9);
  // Four pushes come at once, and the server is busy with one after the other.
  EXPECT_NEAR(kCompute + push + 4 * kRow * 1e-6 + answer + 2 * kLatency,
              (seconds(20, "PER_PAIR", 1000) - seconds(10, "PER_PAIR", 1000)) / 10, 1e-9);
  // With one card for all, the server sends four answers in a row; their readers push as far apart,
  // and the last push waits for none.
  EXPECT_NEAR(kCompute + push + 4 * answer + 2 * kLatency,
              (seconds(20, "PER_PROCESS") - seconds(10, "PER_PROCESS")) / 10,
              4 * (push - answer) + 1e-9);
}

// A job without numbers draws, sends and waits for the same. Only the start differs, in which
// workers with numbers agree on their actions. Schemes whose step times decide how much is done
// (esync's assigned steps) are left out: a worker with numbers pushes its rows layer by layer, and
// has shorter steps.
TEST(Simulation, WithoutNumbersItTakesAsLong) {
  for (const char* scheme :
       {"type: 'bsp'", "type: 'ssp' staleness: 2", "type: 'async'", "type: 'sync_backup' backup: 1",
        "type: 'grouped' groups: '0,1|2'", "type: 'weed_out' max_version_lag: 1",
        "type: 'drift_barrier' max_advance: 2", "type: 'async' payload: DELTA local_steps: 3",
        "type: 'local_steps' local_steps: 3", "type: 'elastic' local_steps: 3",
        "type: 'elastic' local_steps: 2 exchange_order: BEFORE", "type: 'esync' epsilon: 0.001",
        "type: 'esync' epsilon: 0.001 mode: PULL"}) {
    const auto last = [&](int iterations, bool dry) {
      const SolverParameter param =
          with(digits_solver("sim_dry", str("max_iter: ", iterations)), scheme);
      const simulate::Cluster cluster = simulate::parse_cluster(
          "worker { count: 2 compute { ms: 10 distribution: UNIFORM jitter: 0.5 } } worker { "
          "compute { ms: 18 } } server { count: 2 ns_per_byte: 50 } "
          "card { bandwidth: 3e5 latency_ms: 0.2 }",
          "cluster");
      return or_throw(simulate::simulate(param, cluster, {.dry = dry}));
    };
    const Outcome real = last(80, false), dry = last(80, true), real_first = last(10, false),
                  dry_first = last(10, true);
    EXPECT_NEAR(real.seconds - real_first.seconds, dry.seconds - dry_first.seconds,
                0.01 * real.seconds)
        << scheme;
    EXPECT_EQ(real.points.back().iterations, dry.points.back().iterations) << scheme;
    EXPECT_NEAR(static_cast<double>(real.counters.contributions),
                static_cast<double>(dry.counters.contributions),
                0.02 * static_cast<double>(real.counters.contributions))
        << scheme;
    for (std::size_t worker = 0; worker < 3; ++worker) {
      EXPECT_NEAR(real.workers[worker].compute, dry.workers[worker].compute,
                  0.02 * real.workers[worker].compute)
          << scheme;
      EXPECT_NEAR(real.workers[worker].rows, dry.workers[worker].rows, 0.02 * real.seconds)
          << scheme;
    }
  }
}

// Two workers that compute as fast, one of them behind a slow link: the other has time for more
// steps, while that hands in. A round is a little longer, since the slow link goes one way after
// the other then.
TEST(Simulation, EsyncCountsWhatAnExchangeTakes) {
  const std::string cluster =
      "worker { compute { ms: 10 } card { bandwidth: 2e5 } } worker { compute { ms: 10 } card { "
      "bandwidth: 2e4 } } server { card { bandwidth: 0 } } ";
  const SolverParameter param = digits_solver("sim_exchange", "max_iter: 12");
  const auto with_most = [&](int most) {
    return with(param, str("type: 'esync' epsilon: 0.001 max_steps: ", most));
  };
  const Outcome matched = run(with_most(0), cluster, {}), single = run(with_most(1), cluster, {});
  EXPECT_EQ(12, matched.workers[1].iterations);
  EXPECT_GT(matched.workers[0].iterations, 12 * 10);
  EXPECT_LT(matched.seconds, 1.3 * single.seconds);
}

// Tiny differences in time decide which tasks a judge drops; the number of them is the same.
TEST(Simulation, AJudgeThrowsAwayAsMuchWithoutNumbers) {
  const SolverParameter param =
      with(digits_solver("sim_judge", "max_iter: 60"), "type: 'weed_out' weedout: 3");
  const simulate::Cluster cluster = simulate::parse_cluster(
      "worker { count: 2 compute { ms: 10 } } worker { compute { ms: 33 } } card { latency_ms: 0.2 "
      "}",
      "cluster");
  const Outcome real = or_throw(simulate::simulate(param, cluster, {})),
                dry = or_throw(simulate::simulate(param, cluster, {.dry = true}));
  EXPECT_GT(real.counters.dropped, 60u) << "most tasks of the slow one";
  EXPECT_NEAR(static_cast<double>(real.counters.dropped), static_cast<double>(dry.counters.dropped),
              0.1 * static_cast<double>(real.counters.dropped));
}

// As with numbers, every worker reads a share of data that were not divided into parts.
TEST(Simulation, WithoutNumbersDataNeedNotBeInParts) {
  SolverParameter param = digits_solver("sim_dry_parts", "max_iter: 2");
  param.mutable_net_param()->mutable_layer(0)->mutable_data_param()->clear_shared_file_system();
  for (const bool dry : {false, true}) {
    const auto cluster =
        simulate::parse_cluster("worker { count: 2 compute { ms: 10 } }", "cluster");
    const Outcome outcome = or_throw(simulate::simulate(param, cluster, {.dry = dry}));
    EXPECT_EQ(2 * 2, outcome.points.back().iterations);
  }
}

TEST(Simulation, AThousandWorkersWithoutNumbers) {
  const SolverParameter param = digits_solver("sim_many", "max_iter: 3");
  const Outcome outcome = or_throw(simulate::simulate(
      param,
      simulate::parse_cluster("worker { count: 1000 compute { ms: 10 distribution: NORMAL jitter: "
                              "0.1 } } server { count: 4 }",
                              "cluster"),
      {.dry = true}));
  EXPECT_EQ(3 * 1000, outcome.points.back().iterations);
  EXPECT_EQ(3, outcome.points.back().updates);
  EXPECT_GT(outcome.seconds, 0.03);
}

// Lines as docs/metrics.md has them, in virtual seconds.
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
    EXPECT_EQ(3 * 40 * (all.counters.contributions / 120), all.counters.contributions)
        << "each worker's every push counts once";
    EXPECT_GT(all.counters.contributions, 0u);
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

// A worker's lines: what it says of its own seconds adds up, and of staleness and drops what the
// scheme does.
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

// Three workers in step, with one row: after the first round each push is from before the last two
// of the others.
TEST(Simulation, CountsHowStaleEachPushIs) {
  const Outcome outcome =
      run(with(one_row_solver("sim_stale", 20), "type: 'async'"),
          "worker { count: 3 compute { ms: 10 } } server { } overlap: false", {});
  std::vector<std::uint64_t> expected(outcome.version_staleness.size());
  expected[0] = expected[1] = 1;
  expected[2] = 3 * 20 - 2;
  EXPECT_EQ(expected, outcome.version_staleness);
}

// A slow worker holds the others back by as many clocks as the scheme lets them be ahead.
TEST(Simulation, SspLetsAStragglerBeSoManyClocksBehind) {
  const SolverParameter param = digits_solver("sim_straggler", "max_iter: 20");
  for (const int bound : {0, 1, 3, 7}) {
    const Outcome outcome =
        run(with(param, str("type: 'ssp' staleness: ", bound)),
            "worker { count: 2 compute { ms: 10 } } worker { compute { ms: 40 } } server { }", {});
    std::size_t most = 0;
    for (std::size_t i = 0; i < outcome.counters.staleness.size(); ++i)
      if (outcome.counters.staleness[i] > 0) most = i;
    EXPECT_EQ(static_cast<std::size_t>(bound), most);
    EXPECT_NEAR(20 * 0.04, outcome.seconds, 0.01) << "the slowest decides";
    EXPECT_NEAR(0.2, outcome.workers[0].compute, 1e-6);
    // They end with rows that have the slow one's first 20 - bound clocks in them.
    EXPECT_NEAR((20 - bound) * 0.04 - 0.2, outcome.workers[0].rows, 0.005) << bound;
  }
}

TEST(Simulation, AsyncIsAsFastAsItsWorkersTogether) {
  const SolverParameter param = digits_solver("sim_async", "max_iter: 100000");
  const std::string cluster =
      "worker { compute { ms: 2 } } worker { compute { ms: 5 } } worker { compute { ms: 20 } } "
      "server { } card { latency_ms: 0 }";
  const Outcome outcome = run(with(param, "type: 'async'"), cluster, {.seconds = 2});
  EXPECT_NEAR(4 * (500 + 200 + 50) * 2, outcome.points.back().samples, 4 * 3.0);
  EXPECT_EQ(2, outcome.seconds);
  const Outcome bsp = run(param, cluster, {.seconds = 2});
  EXPECT_NEAR(4 * 3 * 50 * 2, bsp.points.back().samples, 4 * 3.0);
}

TEST(Simulation, EndsWhereItIsToldTo) {
  const SolverParameter param = digits_solver("sim_ends", "max_iter: 1000");
  const std::string cluster = "worker { count: 2 compute { ms: 10 } }";
  EXPECT_EQ(100, run(param, cluster, {.samples = 100}).points.back().samples);
  EXPECT_EQ(9, run(param, cluster, {.updates = 9}).points.back().updates);
  const Outcome reached =
      run(param, cluster, {.target = simulate::parse_target("train_loss 1"), .test_every = 0.1});
  ASSERT_TRUE(reached.reached.has_value());
  EXPECT_LE(reached.points.back().loss, 1);
  EXPECT_EQ(*reached.reached, reached.seconds);
}

TEST(Simulation, TheComputeModelFollowsItsWords) {
  using simulate::to_instant;
  const auto compute_of = [](const std::string& words) {
    return simulate::parse_cluster("worker { " + words + " }", "cluster").processes[0].compute;
  };
  for (const char* words :
       {"compute { ms: 8 distribution: UNIFORM jitter: 0.5 }",
        "compute { ms: 8 distribution: NORMAL jitter: 0.2 }",
        "compute { ms: 8 distribution: LOGNORMAL jitter: 0.7 }",
        "compute { ms: 8 distribution: EXPONENTIAL jitter: 1 }", "compute { ms: 16 speed: 2 }"}) {
    Random random(11);
    double sum = 0;
    const simulate::Compute compute = compute_of(words);
    for (std::size_t i = 0; i < 20000; ++i) sum += compute.draw(i, random);
    EXPECT_NEAR(0.008, sum / 20000, 0.0002) << words;
  }
  const simulate::Compute slow = compute_of(
      "compute { ms: 8 } slowdown { from: 1 to: 2 factor: 4 } slowdown { from: 3 to: 5 pause: true "
      "}");
  EXPECT_EQ(to_instant(0.5), slow.done(to_instant(0), 0.5));
  EXPECT_EQ(to_instant(1.4), slow.done(to_instant(0.9), 0.2));
  EXPECT_EQ(to_instant(2.25), slow.done(to_instant(1), 0.5));
  EXPECT_EQ(to_instant(5.5), slow.done(to_instant(2.5), 1));
}

// Two real processes that compute as slowly as told, over a slow network, learn what the tool says
// they do. How long they took is scripts/bench_simulated.py's matter.
TEST(Simulation, RealProcessesThatEmulateDoWhatTheToolSays) {
  if (tools_dir().empty()) GTEST_SKIP() << "TOOLS_DIR is not set";
  const std::string folder = fresh_directory("sim_tool"), solver = folder + "/solver.prototxt";
  SolverParameter param = digits_solver("sim_tool_data", "max_iter: 8");
  param.set_snapshot_after_train(true);
  param.set_snapshot_prefix(folder + "/model");
  put_file(solver, to_text(param));
  put_file(folder + "/cluster", "worker { count: 2 compute { ms: 15 } } card { bandwidth: 1e6 }");

  JobProcesses job(folder, "bb");
  job.start_all(solver, {"--emulate_step_ms=15", "--throttle=1e6"});
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
}

TEST(Simulation, RefusesAClusterThatMakesNoSense) {
  const struct {
    const char* text;
    const char* why;
  } cases[] = {{"server { }", "there is no worker"},
               {"worker { server: false compute { ms: 1 } }", "there is no server"},
               {"worker { }", "needs ms"},
               {"worker { compute { ms: -1 } }", "ms is -1"},
               {"worker { compute { ms: 1 speed: 0 } }", "speed is 0"},
               {"worker { compute { ms: 1 } slowdown { from: 2 to: 1 } }", "from 2 to 1"},
               {"worker { compute { ms: 1 } slowdown { pause: true } }", "needs an end"},
               {"worker { compute { ms: 1 distribution: UNIFORM jitter: 2 } }", "jitter is 2"},
               {"worker { compute { trace: '/no/such' } }", "/no/such"},
               {"worker { comput { } }", "cluster:1:"}};
  for (const auto& c : cases) {
    try {
      simulate::parse_cluster(c.text, "cluster");
      ADD_FAILURE() << c.text;
    } catch (const ConfigError& error) {
      EXPECT_HAS(error.what(), c.why);
    }
  }
  EXPECT_THROW(simulate::parse_target("accuracy"), ConfigError);
  const SolverParameter param = digits_solver("sim_refuses");
  EXPECT_THROW(run(with(param, "type: 'no such'"), "worker { compute { ms: 1 } }", {}),
               ConfigError);
  EXPECT_THROW(
      run(param, "worker { compute { ms: 1 } }", {.target = simulate::parse_target("acuracy 1")}),
      ConfigError);
}

}  // namespace
}  // namespace shoal::test::simulation_test
