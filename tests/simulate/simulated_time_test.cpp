// Tests that jobs take as long in virtual time as arithmetic says, with numbers and without.
#include <gtest/gtest.h>

#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulation.h"
#include "support/simulation_rig.h"

namespace shoal::test::simulated_time_test {
namespace {

using simulate::Outcome;
using simulation::digits_solver;
using simulation::one_row_solver;
using simulation::run;
using simulation::with;

// Without overlap and with a network of its own for each pair, an iteration is: compute, the row to
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

// The factors of the last iteration count, too. Workers with numbers also agree on their start.
TEST(Simulation, WithoutNumbersFactorsAreAsManyBytes) {
  const SolverParameter param =
      digits_solver("sim_factors", "max_iter: 1 exchange { way: FACTORS }");
  const simulate::Cluster cluster = simulate::parse_cluster(
      "worker { count: 3 compute { ms: 10 } } card { bandwidth: 3e5 latency_ms: 0 }", "cluster");
  const auto received = [&](bool dry) {
    double sum = 0;
    for (const auto& worker : or_throw(simulate::simulate(param, cluster, {.dry = dry})).workers)
      sum += static_cast<double>(worker.traffic.bytes_received);
    return sum;
  };
  EXPECT_NEAR(received(false), received(true), 0.15 * received(false));
}

// Two workers compute equally fast, one of them behind a slow link: the other has time for more
// steps, while that hands in. A round is a little longer, since the slow link goes one way after
// the other then.
TEST(Simulation, WithoutNumbersCodecsMakeAsFewBytes) {
  const auto bytes = [&](const char* codec, bool dry) {
    const auto sent = [&](int iterations) {
      const SolverParameter param =
          with(digits_solver("sim_dry_codecs",
                             str("max_iter: ", iterations, " codec { min_count: 1 ", codec, " }")),
               "type: 'bsp'");
      const auto cluster = simulate::parse_cluster(
          "worker { count: 2 compute { ms: 10 } } server { count: 2 } card { bandwidth: 3e5 }",
          "cluster");
      return or_throw(simulate::simulate(param, cluster, {.dry = dry})).points.back().bytes;
    };
    return static_cast<double>(sent(30) - sent(10)) / 20;
  };
  const double whole = bytes("", true);
  for (const char* codec :
       {"push: 'fp16' pull: 'bf16'", "push: 'int8:feedback' pull: 'int8:feedback'",
        "push: 'topk:0.05:8' pull: 'topk:0.05:8'"}) {
    const double dry = bytes(codec, true);
    EXPECT_NEAR(bytes(codec, false), dry, 0.01 * dry) << codec;
    EXPECT_LT(dry, 0.6 * whole) << codec;
  }
}

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

// Three workers are in step, with one row: after the first round each push is from before the last
// two of the others.
TEST(Simulation, CountsHowStaleEachPushIs) {
  const Outcome outcome =
      run(with(one_row_solver("sim_stale", 20), "type: 'async'"),
          "worker { count: 3 compute { ms: 10 } } server { } overlap: false", {});
  table::Staleness expected{};
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
  EXPECT_TRUE(reached.ending.starts_with("train_loss is ")) << reached.ending;
  EXPECT_LE(reached.points.back().loss, 1);
  const auto first = std::ranges::find_if(
      reached.points, [](const auto& point) { return point.loss != 0 && point.loss <= 1; });
  EXPECT_EQ(first->seconds, reached.seconds);
}

// A limit ends the run while workers compute, or wait for rows: what they have done of it counts.
TEST(Simulation, OnlyTheTimeUntilTheEndCounts) {
  const SolverParameter param = digits_solver("sim_cut", "max_iter: 1000");
  for (const bool dry : {false, true}) {
    const auto figures_of = [&](const std::string& cluster) {
      const Outcome outcome = or_throw(simulate::simulate(
          param, simulate::parse_cluster(cluster, "cluster"), {.seconds = 1, .dry = dry}));
      EXPECT_EQ(1, outcome.seconds) << "not when the next thing happens";
      return outcome.workers[0];
    };
    const auto slow = figures_of("worker { count: 2 compute { ms: 10000 } }");
    EXPECT_NEAR(1, slow.compute, 0.01) << dry;
    const auto waits = figures_of("worker { compute { ms: 10 } } worker { compute { ms: 10000 } }");
    EXPECT_NEAR(0.01, waits.compute, 1e-6) << dry;
    EXPECT_NEAR(1, waits.compute + waits.rows + waits.others, 1e-6) << dry;
  }
}

// A test falls on the instant of the end and comes before the last update. The next point has it.
TEST(Simulation, TheLastPointHasAllThatWasDone) {
  const SolverParameter param = digits_solver("sim_last", "max_iter: 3");
  for (const char* compute : {"ms: 100", "ms: 0"}) {
    const Outcome outcome =
        run(param, str("worker { count: 2 compute { ", compute, " } } card { latency_ms: 0 }"),
            {.test_every = 0.1});
    EXPECT_EQ(3, outcome.points.back().updates) << compute;
    EXPECT_EQ(6, outcome.points.back().iterations) << compute;
    EXPECT_GT(outcome.points.back().loss, 0) << compute;
  }
}

// Between many of the tests no iteration ends: the loss is still that of the last, and the metrics
// have no line of it.
TEST(Simulation, ALossIsKeptUntilThereIsAnother) {
  const std::string out = fresh_directory("sim_loss");
  const Outcome outcome = run(digits_solver("sim_loss_data", "max_iter: 3"),
                              "worker { compute { ms: 100 } }", {.test_every = 0.03, .out = out});
  for (const auto& point : outcome.points)
    EXPECT_EQ(point.iterations == 0, point.loss == 0) << point.seconds;
  const std::string lines = get_file(out + "/metrics.0.jsonl");
  std::size_t displays = 0;
  for (std::size_t at = 0; (at = lines.find("\"display\"", at)) != std::string::npos; ++at)
    ++displays;
  EXPECT_EQ(3u, displays) << lines;
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

}  // namespace
}  // namespace shoal::test::simulated_time_test
