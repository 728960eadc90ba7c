// Tests sums of gradients among the workers, by trees, rings and halves: the schedules, the
// predicted cost of each exchange, and training that equals that of the table and of one machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "shoal/base/random.h"
#include "shoal/parallel/exchange/exchange_choice.h"
#include "shoal/parallel/sums/collective.h"
#include "shoal/table/placement.h"
#include "support/exchange_job.h"
#include "support/schemes.h"

namespace shoal::test::collectives_test {
namespace {

using parallel::Cost;
using parallel::cost_of;
using parallel::JobSize;
using parallel::kCollectives;
using parallel::kPredictedWays;
using parallel::LayerSize;
using parallel::name_of;
using parallel::Rates;
using parallel::Step;
using parallel::Way;

// ---- schedules ----

using Vectors = std::vector<std::vector<float>>;  // by worker

// Runs all workers' steps, one of a worker drawn at a time, with the messages on their way between
// them.
Vectors summed(Way way, Vectors vectors, std::uint64_t seed) {
  const int workers = static_cast<int>(vectors.size());
  const auto steps = parallel::steps_of(way, workers, vectors[0].size());
  std::vector<parallel::StepsDone> done(steps.begin(), steps.end());
  for (parallel::StepsDone& one : done) one.restart();
  std::map<std::size_t, std::vector<float>> on_the_way;  // by transfer
  Random random(seed, 0);
  const auto act = [&](std::size_t worker, const Step& step) {
    float* const own = vectors[worker].data() + step.first;
    if (step.sends) {
      EXPECT_TRUE(on_the_way.emplace(step.transfer, std::vector(own, own + step.count)).second);
      return true;
    }
    const auto come = on_the_way.find(step.transfer);
    if (come == on_the_way.end()) return false;
    EXPECT_EQ(step.count, come->second.size());
    for (std::size_t i = 0; i < step.count; ++i)
      own[i] = come->second[i] + (step.adds ? own[i] : 0);
    on_the_way.erase(come);
    return true;
  };
  const auto is_done = [](const auto& one) { return one.is_done(); };
  for (int tries = 0; !std::ranges::all_of(done, is_done); ++tries) {
    EXPECT_LT(tries, 1'000'000) << "no worker goes on";
    if (tries == 1'000'000) return {};
    const std::size_t worker = random.below(vectors.size());
    bool first = true;  // one step at a time
    done[worker].advance(
        [&](const Step& step) { return std::exchange(first, false) && act(worker, step); });
  }
  EXPECT_TRUE(on_the_way.empty());
  return vectors;
}

// A worker does not add again to numbers that it has sent to be added, so that they may be sent in
// place: only a sum that contains them replaces them.
TEST(CollectiveSteps, WhatWasSentChangesOnlyWhenTheSumHasIt) {
  for (const Way way : kCollectives)
    for (int workers = 2; workers <= 9; ++workers)
      for (const auto& strips : parallel::steps_of(way, workers, 300'000))
        for (const parallel::Strip& strip : strips)
          for (std::size_t sent = 0; sent < strip.size(); ++sent)
            for (std::size_t later = sent + 1; strip[sent].sends && later < strip.size(); ++later) {
              const Step &a = strip[sent], &b = strip[later];
              const bool overlap = a.first < b.first + b.count && b.first < a.first + a.count;
              ASSERT_FALSE(overlap && !b.sends && (b.adds || !a.adds))
                  << name_of(way) << " of " << workers;
            }
}

TEST(CollectiveSteps, SayWhichAddToTheSameNumbersOneAfterTheOther) {
  for (const Way way : kCollectives)
    for (const auto& strips : parallel::steps_of(way, 4, 300'000))
      for (const parallel::Strip& strip : strips)
        for (std::size_t i = 0; i < strip.size(); ++i) {
          const Step& step = strip[i];
          const bool goes_on = i > 0 && strip[i - 1].more;
          EXPECT_EQ(step.together, goes_on ? strip[i - 1].together + 1 : 0);
          if (step.more) {
            EXPECT_TRUE(step.adds && !step.sends && strip.at(i + 1).adds && !strip[i + 1].sends);
            EXPECT_TRUE(step.first == strip[i + 1].first && step.count == strip[i + 1].count);
          }
          if (way == Way::kDirect && step.adds && !step.sends) {
            EXPECT_EQ(step.more, step.together < 2) << "all others' parts";
          }
        }
}

TEST(Collectives, LeaveTheSumOfAllWithEveryWorker) {
  for (const Way way : kCollectives)
    for (std::size_t workers = 1; workers <= 9; ++workers)
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, workers - 1, workers, workers + 1, std::size_t{1000},
            std::size_t{3 * table::kRowFloats + 1}}) {
        SCOPED_TRACE(str(name_of(way), " of ", count, " numbers and ", workers, " workers"));
        Vectors vectors(workers, std::vector<float>(count));
        std::vector<float> sum(count);
        for (std::size_t w = 0; w < workers; ++w)
          for (std::size_t i = 0; i < count; ++i)
            sum[i] += vectors[w][i] = static_cast<float>((w + 1) * (i % 1000));
        for (const auto& own : summed(way, std::move(vectors), workers)) ASSERT_EQ(sum, own);
      }
}

TEST(Collectives, LeaveTheSameBitsWithEveryWorkerInEveryRun) {
  for (const Way way : kCollectives)
    for (std::size_t workers = 2; workers <= 9; ++workers) {
      Random random(workers, 1);
      Vectors vectors(workers, std::vector<float>(257));
      for (auto& own : vectors)
        for (float& number : own) number = random.unit() - 0.5f;
      const Vectors once = summed(way, vectors, 1);
      for (const std::uint64_t seed : {2, 3})
        for (const auto& own : summed(way, vectors, seed))
          ASSERT_EQ(once[0], own) << name_of(way) << " of " << workers;
    }
}

TEST(Collectives, LoadsAreThoseOfTheirSchedules) {
  for (const Way way : kCollectives)
    for (int workers = 2; workers <= 40; ++workers) {
      const auto count = static_cast<std::size_t>(workers) * 2520 * 16;
      std::map<int, std::map<int, double>> sent, received;  // by round and worker
      std::map<int, double> all_sent, all_received;         // by worker
      for (const parallel::Transfer& one : parallel::transfers_of(way, workers, count)) {
        const double part = static_cast<double>(one.count) / static_cast<double>(count);
        sent[one.round][one.from] += part;
        received[one.round][one.to] += part;
        all_sent[one.from] += part;
        all_received[one.to] += part;
      }
      const auto most = [](const std::map<int, double>& by_worker) {
        double most = 0;
        for (const auto& [worker, part] : by_worker) most = std::max(most, part);
        return most;
      };
      double in_turn = 0;
      for (const auto& [round, each] : sent) in_turn += std::max(most(each), most(received[round]));
      const parallel::Load load = parallel::load_of(way, workers);
      SCOPED_TRACE(str(name_of(way), " of ", workers));
      EXPECT_NEAR(load.busiest, std::max(most(all_sent), most(all_received)), 1e-3);
      EXPECT_NEAR(load.in_turn, in_turn, 1e-3);
      EXPECT_EQ(load.rounds, static_cast<int>(sent.size()));
    }
}

// Checks that a plan of many workers and a large vector stays small enough, and no transfer is
// longer than a row.
TEST(Collectives, MakeNoMoreRowsThanAPlanBears) {
  constexpr std::size_t kLarge = 240'000'000;
  for (const Way way : kCollectives)
    for (const int workers : {2, 16, 100, 128}) {
      const std::vector<std::size_t> begins = parallel::strips_of(way, workers, kLarge);
      EXPECT_EQ(0u, begins.front());
      EXPECT_EQ(kLarge, begins.back());
      const auto transfers = parallel::transfers_of(way, workers, begins[1]);
      EXPECT_LE((begins.size() - 1) * transfers.size(), table::kMaxRows / 2)
          << name_of(way) << " of " << workers;
      for (const parallel::Transfer& one : transfers) ASSERT_LE(one.count, table::kMaxRowFloats);
    }
}

// The unit is the vector over the bandwidth. Rings, halving and doubling and direct sums take
// 2 (p - 1) / p.
TEST(Collectives, TakeTheTimeOfTheFormulas) {
  const LayerSize size{.params = 1 << 20};
  const Rates rates{.bandwidth = 4.0 * (1 << 20), .latency = 1, .multiply_adds = 0};
  for (const auto& [workers, ring] : std::map<int, double>{
           {2, 1}, {4, 1.5}, {8, 1.75}, {16, 1.875}, {32, 1.9375}, {64, 1.96875}}) {
    const JobSize job{workers, workers};
    const Cost around = cost_of(Way::kRing, size, job, rates),
               halves = cost_of(Way::kHalvingDoubling, size, job, rates),
               direct = cost_of(Way::kDirect, size, job, rates),
               table = cost_of(Way::kTable, size, job, rates);
    EXPECT_NEAR(ring, around.link, 1e-9);
    EXPECT_NEAR(ring, halves.link, 1e-9);
    EXPECT_NEAR(ring, direct.link, 1e-9);
    EXPECT_NEAR(ring, table.link, 1e-9) << "as many servers as workers";
    EXPECT_EQ(2 * (workers - 1), around.latency);
    EXPECT_EQ(2 * std::log2(workers), halves.latency);
    EXPECT_EQ(2, direct.latency);
    EXPECT_NEAR(workers, cost_of(Way::kTable, size, {workers, 1}, rates).link + 1, 1e-9);
    // With the whole vector at once the tree would take 2 log2 p; here its strips follow each
    // other.
    EXPECT_LE(cost_of(Way::kTree, size, job, rates).link, 2 * std::log2(workers) + 1e-9);
  }
}

// ---- the choice ----

struct Choice {
  std::string layer;
  Way way;
  std::string why;
};
std::vector<Choice> chosen(const SolverParameter& solver, const JobSize& job, const Rates& rates) {
  Context context({});
  NetParameter param = solver.net_param();
  Net net(param, context);
  std::vector<Choice> all;
  for (const parallel::LayerExchange& one : parallel::choose_exchanges(
           net, solver, "job", *or_throw(table::make_scheme("bsp")), job, rates))
    all.push_back({net.layers()[static_cast<std::size_t>(one.layer)]->name(), one.way, one.why});
  return all;
}

// The weights of the convolution are few; the inner product's are 1000 x 3000, of 16 rows.
SolverParameter two_layers(const std::string& exchange) {
  SolverParameter param = parse_solver(
      str("base_lr: 0.01 lr_policy: 'fixed' max_iter: 500 display: 0 snapshot_after_train: false ",
          exchange),
      "job");
  *param.mutable_net_param() = parse_net(
      "layer { name: 'x' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { shape { dim: 16 "
      "dim: 1 dim: 50 dim: 60 } shape { dim: 16 dim: 1000 } } } layer { name: 'conv' type: "
      "'Convolution' bottom: 'x' top: 'c' convolution_param { num_output: 1 kernel_size: 1 } } "
      "layer { name: 'ip' type: 'InnerProduct' bottom: 'c' top: 'ip' inner_product_param { "
      "num_output: 1000 bias_term: false } } layer { name: 'loss' type: 'EuclideanLoss' bottom: "
      "'ip' bottom: 'y' top: 'loss' }",
      "job.prototxt");
  return param;
}

TEST(ExchangeCost, AutoTakesTheLeastTime) {
  const SolverParameter solver = two_layers("exchange { way: AUTO }");
  const Rates slow_link{.bandwidth = 1e7, .latency = 1e-4, .multiply_adds = 1e10};
  // The link of the one server has all workers' gradients. A ring spreads them.
  const auto ring =
      chosen(two_layers("exchange { layer { name: 'ip' way: RING } }"), {4, 1}, slow_link);
  EXPECT_EQ(Way::kRing, ring.at(1).way);
  EXPECT_EQ("as the solver says", ring.at(1).why);
  EXPECT_EQ(Way::kFactors, chosen(solver, {4, 4}, slow_link).at(1).way);
  EXPECT_EQ("least time", chosen(solver, {4, 4}, slow_link).at(1).why);
  EXPECT_EQ(Way::kTable, chosen(solver, {4, 4}, slow_link).at(0).way);
  // The products of factors take longer than the link does for the gradients.
  const Rates slow_processor{.bandwidth = 1e9, .latency = 1e-4, .multiply_adds = 1e8};
  EXPECT_EQ(Way::kTable, chosen(solver, {4, 4}, slow_processor).at(1).way);
  const Way with_one_server = chosen(solver, {16, 1}, slow_processor).at(1).way;
  EXPECT_TRUE(parallel::is_collective(with_one_server)) << name_of(with_one_server);
  // Among 65 workers a strip of a direct sum would have 8,320 rows.
  for (const int workers : {64, 65}) {
    const SolverParameter clipped = two_layers("clip_gradients: 1 exchange { way: FACTORS }");
    const Rates rates{.bandwidth = 1e8, .latency = 5e-5, .multiply_adds = 0};
    EXPECT_EQ(workers == 64, chosen(clipped, {workers, 1}, rates).at(0).way == Way::kDirect);
  }
  // Without rates HybComm's numbers decide.
  EXPECT_EQ("fewer numbers", chosen(solver, {4, 4}, {}).at(1).why);
}

// Half of the numbers in the formulas are sent. The first numbers' way to the workers does not
// count.
TEST(ExchangeCost, IsWhatASimulatedJobWithoutNumbersMovesAndTakes) {
  const LayerSize size{.params = 3000 * 1000, .factors = Factored::Sizes{16, 1000, 3000}};
  const Rates rates{.bandwidth = 1e8, .latency = 5e-5, .multiply_adds = 0};
  constexpr int kShort = 10, kLong = 60;
  for (const Way way : kPredictedWays) {
    SolverParameter solver =
        two_layers(str("exchange { layer { name: 'ip' way: ", name_of(way), " } way: TABLE }"));
    const auto run = [&](int iterations) {
      solver.set_max_iter(iterations);
      const simulate::Outcome outcome = simulated(solver, 4, "1e8", true);
      double most = 0;
      for (const auto& worker : outcome.workers)
        most = std::max(most, static_cast<double>(std::max(worker.traffic.bytes_sent,
                                                           worker.traffic.bytes_received)));
      return std::pair(outcome.seconds, most);
    };
    const auto before = run(kShort), after = run(kLong);
    const double seconds = (after.first - before.first) / (kLong - kShort),
                 bytes = (after.second - before.second) / (kLong - kShort);
    const Cost cost = cost_of(way, size, {4, 4}, rates);
    EXPECT_NEAR(1, bytes / (2 * cost.numbers), 0.05) << name_of(way);
    EXPECT_NEAR(1, seconds / (cost.seconds() + 0.01), 0.15) << name_of(way);
  }
}

// ---- training ----

using CollectiveTraining = ExchangeJob;

std::string by(Way way) { return str(" exchange { way: ", name_of(way), " }"); }

TEST_F(CollectiveTraining, EqualsTheTableAndOneMachineForAllRules) {
  for (const char* rule : kRules) {
    const std::string words = str(rule, " weight_decay: 0.004 iter_size: 2");
    const JobResult alone = train(job(1, words), {.stops = {5}});
    ASSERT_TRUE(alone.ok()) << alone.why();
    for (const int workers : {2, 4}) {
      const JobShape shape{.workers = workers, .servers = workers, .stops = {5}};
      const JobResult table = train(job(workers, words), shape);
      for (const Way way : kCollectives) {
        SCOPED_TRACE(str(rule, ", ", workers, " workers, ", name_of(way)));
        const JobResult sums = train(job(workers, words + by(way)), shape);
        ASSERT_TRUE(table.ok() && sums.ok()) << table.why() << sums.why();
        EXPECT_LE(distance(sums.at(0), table.at(0)), 1e-6);
        EXPECT_LE(distance(sums.at(0), alone.at(0)), 1e-5);
        for (const auto& weights : sums.weights) EXPECT_EQ(sums.weights[0], weights);
      }
    }
  }
}

TEST_F(CollectiveTraining, IsTheSameOverTcpForAnyNumberOfServers) {
  for (const Way way : kCollectives)
    for (const int servers : {1, 3}) {
      const std::string words = str(kRules[0], by(way));
      const JobShape shape{.workers = 4, .servers = 4, .stops = {20}};
      const JobResult simulated = train(job(4, words), shape),
                      real = train(
                          job(4, words),
                          {.workers = 4, .servers = servers, .over_tcp = true, .stops = {20}});
      ASSERT_TRUE(simulated.ok() && real.ok()) << simulated.why() << real.why();
      for (const auto& weights : real.weights)
        EXPECT_EQ(simulated.weights[0], weights) << name_of(way);
    }
}

// Sends each layer of one net by another way.
TEST_F(CollectiveTraining, WaysGoTogether) {
  const std::string words =
      " exchange { way: TABLE layer { name: 'conv' way: RING } layer { name: 'turned' way: TREE } "
      "layer { name: 'deep' way: FACTORS } layer { name: 'ip' way: HALVING_DOUBLING } }";
  const JobShape shape{.workers = 4, .servers = 4, .over_tcp = true, .stops = {10}};
  const JobResult table = train(job(4, kRules[0]), shape),
                  mixed = train(job(4, kRules[0] + words), shape);
  ASSERT_TRUE(table.ok() && mixed.ok()) << table.why() << mixed.why();
  EXPECT_NE(table.at(0), mixed.at(0));
  EXPECT_LE(distance(mixed.at(0), table.at(0)), 1e-6);
}

// A worker whose gradient is not finite sends zeros that count nothing.
TEST_F(CollectiveTraining, LeavesOutAWorkerWhoseGradientIsNotFinite) {
  for (const Way way : kCollectives) {
    const std::string words = str(kRules[0], " on_nan: SKIP");
    const JobShape shape{.workers = 2, .servers = 2, .stops = {6}, .before = poison_a_pass};
    const JobResult table = train(job(2, words), shape),
                    sums = train(job(2, words + by(way)), shape);
    ASSERT_TRUE(table.ok() && sums.ok()) << table.why() << sums.why();
    EXPECT_LE(distance(sums.at(0), table.at(0)), 1e-6);
    EXPECT_EQ(sums.weights[0], sums.weights[1]);
  }
}

TEST_F(CollectiveTraining, SimulatedJobEndsWithTheParamsOfTheTableInPhasesToo) {
  for (const char* phases : {"", " scheme { iterations: 8 } scheme { base_lr: 0.02 }"})
    for (const Way way : kCollectives) {
      SolverParameter param = job(2, str(kRules[0], phases));
      param.set_max_iter(20);
      const std::vector<float> table = simulated(param, 2, "1e8").weights;
      ExchangeParameter::Way wanted{};
      ASSERT_TRUE(ExchangeParameter::Way_Parse(name_of(way), &wanted));
      param.mutable_exchange()->set_way(wanted);
      EXPECT_LE(distance(simulated(param, 2, "1e8").weights, table), 1e-6) << phases;
    }
}

// Four workers' batches of 2 are one of 8: the rate is four times, or twice, that of one worker.
TEST_F(CollectiveTraining, RatesGrowWithTheBatch) {
  const auto trained = [&](const std::string& words, int workers = 4) {
    SolverParameter param = job(4, "momentum: 0.9 " + words);
    param.set_max_iter(6);
    return simulated(param, workers, "1e8").weights;
  };
  const auto linear = trained("base_lr: 0.01 batch_scaling { }"),
             root = trained("base_lr: 0.01 batch_scaling { rule: SQRT }"),
             based = trained("base_lr: 0.01 batch_scaling { base_batch: 4 }"),
             warmed = trained("base_lr: 0.01 batch_scaling { warmup_iterations: 5 }");
  EXPECT_LE(distance(linear, trained("base_lr: 0.04")), 1e-6);
  EXPECT_LE(distance(root, trained("base_lr: 0.02")), 1e-6);
  EXPECT_EQ(root, based);
  EXPECT_GT(distance(warmed, linear), 1e-4);
  EXPECT_EQ(trained("base_lr: 0.01 batch_scaling { rule: NONE }"), trained("base_lr: 0.01"));
  EXPECT_EQ(trained("base_lr: 0.01 batch_scaling { }", 1), trained("base_lr: 0.01", 1));
}

TEST_F(CollectiveTraining, RefusesWhatCannotBe) {
  const Refusal cases[] = {
      {"exchange { layer { name: 'conv' way: TREE } }", "makes no update of all", "async"},
      {"exchange { layer { name: 'conv' way: TREE } }", "lets workers be at different clocks",
       "ssp 1"},
  };
  for (const Refusal& one : cases) expect(one);
}

}  // namespace
}  // namespace shoal::test::collectives_test
