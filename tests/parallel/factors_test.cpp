// Tests gradients that travel as factors: the sum, the rows with one writer, the choice by traffic,
// and training that equals that of the table and of one machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "shoal/layers/factored.h"
#include "shoal/net/net.h"
#include "shoal/parallel/exchange/exchange_choice.h"
#include "shoal/parallel/exchange/exchanges.h"
#include "shoal/table/shard.h"
#include "support/exchange_job.h"
#include "support/regression.h"
#include "support/schemes.h"

namespace shoal::test::factors_test {
namespace {

using parallel::cost_of;
using parallel::JobSize;
using parallel::Way;

constexpr std::array kAmongWorkers{Way::kFactors, Way::kTree, Way::kRing, Way::kHalvingDoubling,
                                   Way::kDirect};

// ---- the sum ----

void set(Tensor& tensor, const Shape& shape, const std::vector<float>& numbers) {
  tensor.reshape(shape);
  std::ranges::copy(numbers, tensor.host_out().begin());
}
std::vector<float> numbers_of(const Tensor& tensor) {
  return {tensor.host().begin(), tensor.host().end()};
}

TEST(Factors, OfTwoWorkersMakeTheSumOfTheirGradients) {
  for (const bool transpose : {false, true}) {
    Context context({});
    Net net(parse_net(str("layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 "
                          "dim: 3 } } } layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: "
                          "'ip' inner_product_param { num_output: 2 transpose: ",
                          transpose, " } }"),
                      "net"),
            context);
    Layer& layer = *net.layers()[1];
    auto& factored = dynamic_cast<Factored&>(layer);
    Tensor top_grad, bottom;
    set(top_grad, {2, 2}, {1, 0, 0, 2});
    set(bottom, {2, 3}, {1, 2, 3, 4, 5, 6});
    factored.add_gradients(context, top_grad, bottom);
    set(top_grad, {1, 2}, {1, -1});
    set(bottom, {1, 3}, {1, 0, 2});
    factored.add_gradients(context, top_grad, bottom);
    EXPECT_EQ(transpose ? (std::vector<float>{2, 7, 2, 10, 5, 10})
                        : (std::vector<float>{2, 2, 5, 7, 10, 10}),
              numbers_of(layer.params()[0]->grad));
    EXPECT_EQ((std::vector<float>{2, 1}), numbers_of(layer.params()[1]->grad));
  }
}

// ---- the choice ----

TEST(Factors, TrafficIsThatOfPoseidonsTable) {
  struct Case {
    std::int64_t outputs, inputs, rows, workers;
    double factors, table;  // millions of numbers
    bool fewer;
  };
  const Case cases[] = {
      {4096, 4096, 32, 2, .52, 33.55, true},       {4096, 4096, 32, 8, 3.67, 58.72, true},
      {4096, 4096, 256, 8, 29.36, 58.72, true},    {4096, 4096, 256, 16, 62.91, 62.91, true},
      {4096, 4096, 256, 32, 130.02, 65.01, false}, {4096, 25088, 32, 32, 57.90, 398.20, true},
      {1000, 4096, 128, 8, 9.13, 14.34, true},     {1000, 4096, 128, 16, 19.57, 15.36, false},
      {1000, 1024, 32, 16, 1.94, 3.84, true},      {1000, 1024, 32, 32, 4.02, 3.97, false}};
  for (const Case& c : cases) {
    const Factored::Sizes sizes{c.rows, c.outputs, c.inputs};
    const JobSize job{c.workers, c.workers};
    const parallel::LayerSize layer{c.outputs * c.inputs, sizes};
    EXPECT_NEAR(c.factors, cost_of(Way::kFactors, layer, job, {}).numbers / 1e6, 0.006);
    EXPECT_NEAR(c.table, cost_of(Way::kTable, layer, job, {}).numbers / 1e6, 0.006);
    EXPECT_EQ(c.fewer, parallel::factors_are_fewer(sizes, job))
        << c.outputs << " x " << c.inputs << ", " << c.rows << " rows, " << c.workers;
  }
}

// Uses eight workers; also with a server of each one's own, or of every second one's own.
TEST(Factors, AServerSendsOnWhatWorkersWithoutOneWrite) {
  const auto roster_of = [](int each, int apart) {  // each: workers a server
    table::RosterBody roster;
    for (int i = 0; i < 8; ++i) {
      table::RosterBody::Process process;
      process.worker = i;
      process.server = each > 0 && i < 8 / each ? i : -1;
      roster.processes.push_back(process);
    }
    for (int i = 0; i < apart; ++i) {
      table::RosterBody::Process process;
      process.worker = -1;
      process.server = i;
      roster.processes.push_back(process);
    }
    return roster;
  };
  const JobSize one = parallel::job_size_of(roster_of(0, 1), 1),
                all = parallel::job_size_of(roster_of(1, 0), 1),
                half = parallel::job_size_of(roster_of(2, 0), 1);
  EXPECT_EQ((std::vector{one.writers, all.writers, half.writers}),
            (std::vector<std::int64_t>{8, 1, 2}));
  EXPECT_TRUE(one.relays && half.relays && !all.relays);
  EXPECT_TRUE(one.apart && !half.apart && !all.apart);
  const parallel::LayerSize layer{1000 * 1000, Factored::Sizes{10, 1000, 1000}};
  const parallel::Rates rates{.bandwidth = 4e6, .latency = 0};
  const auto seconds = [&](Way way, const JobSize& job) {
    return cost_of(way, layer, job, rates).seconds();
  };
  EXPECT_DOUBLE_EQ(seconds(Way::kTable, one), 8) << "a million numbers of each worker's";
  EXPECT_DOUBLE_EQ(seconds(Way::kTable, all), 1.75);
  EXPECT_DOUBLE_EQ(seconds(Way::kTable, half), 2.5);
  for (const Way way : {Way::kRing, Way::kDirect, Way::kHalvingDoubling, Way::kTree})
    EXPECT_DOUBLE_EQ(seconds(way, one), 14) << "seven eighths of it, there and back";
  EXPECT_DOUBLE_EQ(seconds(Way::kDirect, half), 3.5);
  EXPECT_DOUBLE_EQ(seconds(Way::kFactors, all), 0.14);
  EXPECT_DOUBLE_EQ(seconds(Way::kFactors, one), 8 * 0.14);
  EXPECT_DOUBLE_EQ(seconds(Way::kFactors, half), 2 * 0.14);
}

// ---- training ----

constexpr const char* kFactors = " exchange { way: FACTORS }";
using FactorTraining = ExchangeJob;

TEST_F(FactorTraining, EqualsTheTableAndOneMachineForAllRules) {
  for (const char* rule : kRules) {
    const std::string words = str(rule, " weight_decay: 0.004 iter_size: 2");
    const JobResult alone = train(job(1, words), {.stops = {5}});
    ASSERT_TRUE(alone.ok()) << alone.why();
    for (const int workers : {2, 4}) {
      const JobShape shape{.workers = workers, .servers = workers, .stops = {5}};
      const JobResult table = train(job(workers, words), shape),
                      factors = train(job(workers, words + kFactors), shape);
      ASSERT_TRUE(table.ok() && factors.ok()) << rule << ": " << table.why() << factors.why();
      EXPECT_NE(table.at(0), factors.at(0)) << "the factors were not used";
      EXPECT_LE(distance(factors.at(0), table.at(0)), 1e-6) << rule << ", " << workers;
      EXPECT_LE(distance(factors.at(0), alone.at(0)), 1e-5) << rule << ", " << workers;
      for (const auto& weights : factors.weights)
        EXPECT_EQ(factors.weights[0], weights) << rule << ": workers differ";
    }
  }
}

// Makes a product hold the rows of all four workers, of two, or of one.
TEST_F(FactorTraining, EqualsTheTableHoweverManyProductsTheRowsTake) {
  for (const int passes : {60, 90, 260}) {
    const std::string words = str(kRules[0], " iter_size: ", passes);
    const JobShape shape{.workers = 4, .servers = 4, .stops = {2}};
    const JobResult table = train(job(4, words), shape),
                    factors = train(job(4, words + kFactors), shape);
    ASSERT_TRUE(table.ok() && factors.ok()) << table.why() << factors.why();
    EXPECT_LE(distance(factors.at(0), table.at(0)), 1e-6) << passes << " passes";
    for (const auto& weights : factors.weights) EXPECT_EQ(factors.weights[0], weights);
  }
}

TEST_F(FactorTraining, IsTheSameOverTcpWithFewerServersThanWorkers) {
  const std::string words = str(kRules[0], kFactors);
  const JobResult simulated = train(job(4, words), {.workers = 4, .servers = 4, .stops = {20}});
  for (const int servers : {1, 3, 4}) {
    const JobResult real =
        train(job(4, words), {.workers = 4, .servers = servers, .over_tcp = true, .stops = {20}});
    ASSERT_TRUE(simulated.ok() && real.ok()) << simulated.why() << real.why();
    for (const auto& weights : real.weights) EXPECT_EQ(simulated.weights[0], weights);
  }
}

// All make the same updates, clock by clock, each of gradients as old as the bound allows, however
// far apart the workers are.
TEST_F(FactorTraining, UnderABoundOfStalenessIsTheReferenceWithLateGradients) {
  const auto make = [](int nets) {
    SolverParameter param =
        job(nets, str("base_lr: 0.1 momentum: 0.9 weight_decay: 0.01", kFactors));
    param.set_lr_policy("fixed");
    NetParameter& net = *param.mutable_net_param();
    const LayerParameter data = net.layer(0), loss = net.layer(net.layer_size() - 1);
    net = parse_net(
        "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
        "num_output: 4 weight_filler { type: 'xavier' } } }",
        "net");
    const LayerParameter ip = net.layer(0);
    net.clear_layer();
    for (const LayerParameter& layer : {data, ip, loss}) *net.add_layer() = layer;
    return param;
  };
  const JobResult alone = train(make(1), {.stops = {0}});
  ASSERT_TRUE(alone.ok()) << alone.why();
  for (const std::size_t staleness : {0, 1, 2, 3})
    for (const int workers : {2, 4})
      for (const bool over_tcp : {false, true}) {
        const std::string scheme = str("ssp ", staleness);
        const Weights exact =
            Regression(records_, kBatch, kScale).train(alone.at(0), 50, 0.1, 0.9, 0.01, staleness);
        const JobResult result = train(make(workers), {.workers = workers,
                                                       .servers = workers,
                                                       .over_tcp = over_tcp,
                                                       .scheme = scheme,
                                                       .stops = {50}});
        ASSERT_TRUE(result.ok()) << scheme << ": " << result.why();
        EXPECT_LE(distance(result.at(0), exact), 2e-6) << scheme << ", " << workers << " workers";
        for (const auto& weights : result.weights) EXPECT_EQ(result.weights[0], weights) << scheme;
      }
}

// Every worker knows the norm of all gradients; those of layers without factors are summed too.
TEST_F(FactorTraining, ClipsByTheNormOfAllLayersBySummingWaysAlone) {
  for (const char* rule : {kRules[0], kRules[5]}) {
    const std::string plain = str(rule, " weight_decay: 0.004 iter_size: 2"),
                      words = plain + " clip_gradients: 0.5";
    const JobResult alone = train(job(1, words), {.stops = {5}}),
                    unclipped = train(job(1, plain), {.stops = {5}});
    EXPECT_GT(distance(alone.at(0), unclipped.at(0)), 1e-4) << "nothing was clipped";
    for (const int workers : {2, 4}) {
      const JobShape shape{.workers = workers, .servers = 2, .stops = {5}};
      const JobResult table = train(job(workers, words), shape);
      for (const Way way : kAmongWorkers) {
        SCOPED_TRACE(str(rule, ", ", workers, " workers, ", name_of(way)));
        const JobResult sums =
            train(job(workers, str(words, " exchange { way: ", name_of(way), " }")), shape);
        ASSERT_TRUE(table.ok() && sums.ok()) << table.why() << sums.why();
        EXPECT_LE(distance(sums.at(0), table.at(0)), 1e-6);
        EXPECT_LE(distance(sums.at(0), alone.at(0)), 1e-5);
        for (const auto& weights : sums.weights) EXPECT_EQ(sums.weights[0], weights);
      }
    }
  }
}

// A worker's gradient is the mean of its replicas', whatever carries it.
TEST_F(FactorTraining, TakesTheFactorsAndGradientsOfAllReplicas) {
  const std::string words = str(kRules[0], " weight_decay: 0.004 iter_size: 2");
  const JobResult alone = train(job(1, words), {.stops = {10}});
  for (const char* clip : {"", " clip_gradients: 0.5"})
    for (const Way way : kAmongWorkers) {
      SCOPED_TRACE(str(name_of(way), clip));
      const JobShape shape{
          .workers = 2, .servers = 2, .replicas = 2, .over_tcp = true, .stops = {10}};
      const JobResult table = train(job(4, words + clip), shape),
                      sums = train(
                          job(4, str(words, clip, " exchange { way: ", name_of(way), " }")), shape);
      ASSERT_TRUE(table.ok() && sums.ok()) << table.why() << sums.why();
      EXPECT_LE(distance(sums.at(0), table.at(0)), 1e-6);
      if (*clip == 0) {
        EXPECT_LE(distance(sums.at(0), alone.at(0)), 1e-5);
      }
      EXPECT_EQ(sums.weights[0], sums.weights[1]);
    }
}

// A worker whose gradient is not finite sends zeros that count nothing.
TEST_F(FactorTraining, LeavesOutAWorkerWhoseGradientIsNotFinite) {
  for (const char* clip : {"", " clip_gradients: 0.5"}) {
    const std::string words = str(kRules[0], " on_nan: SKIP", clip);
    const JobShape shape{.workers = 2, .servers = 2, .stops = {6}, .before = poison_a_pass};
    const JobResult table = train(job(2, words), shape),
                    factors = train(job(2, words + kFactors), shape);
    ASSERT_TRUE(table.ok() && factors.ok()) << table.why() << factors.why();
    EXPECT_LE(distance(factors.at(0), table.at(0)), 1e-6);
    EXPECT_EQ(factors.weights[0], factors.weights[1]);
  }
}

// AUTO takes one place for the norm of all: the table for both layers, or neither.
TEST_F(FactorTraining, AutoLetsNoLayerGoByTheTableAloneWhereGradientsAreClipped) {
  const SolverParameter param = job(2, str(kRules[0], " clip_gradients: 0.5 exchange { }"));
  Context context({});
  Net net(param.net_param(), context);
  for (const std::int64_t servers : {1, 2, 4}) {
    const auto choices = parallel::choose_exchanges(
        net, param, "job", *or_throw(table::make_scheme("bsp")), {4, servers}, {});
    for (const auto& one : choices)
      EXPECT_EQ(choices[0].way == Way::kTable, one.way == Way::kTable)
          << servers << " servers, layer " << one.layer << ": " << one.why;
  }
}

// In the second phase, a generation of its own, all go on with the chief's params and momentum.
TEST_F(FactorTraining, SimulatedJobEndsWithTheParamsOfTheTableInPhasesToo) {
  for (const char* phases : {"", " scheme { iterations: 8 } scheme { base_lr: 0.02 }"}) {
    SolverParameter param = job(2, str(kRules[0], phases));
    param.set_max_iter(20);
    const std::vector<float> table = simulated(param, 2, "1e8").weights;
    param.mutable_exchange()->set_way(ExchangeParameter::FACTORS);
    const std::vector<float> factors = simulated(param, 2, "1e8").weights;
    EXPECT_NE(table, factors) << "the factors were not used";
    EXPECT_LE(distance(factors, table), 1e-6) << phases;
  }
}

TEST_F(FactorTraining, RefusesWhatCannotBe) {
  const Refusal cases[] = {
      {"exchange { layer { name: 'conv' way: FACTORS } }",
       "layer 'conv' cannot send factors: the gradient of a Convolution is no product"},
      {"exchange { layer { name: 'shared' way: FACTORS } }", "another layer shares its params"},
      {"exchange { layer { name: 'frozen' way: FACTORS } }", "its weight does not learn"},
      {"exchange { layer { name: 'nosuch' way: FACTORS } }", "the net has no layer 'nosuch'"},
      {"exchange { layer { way: FACTORS } }", "needs a name or a type, not both"},
      {"exchange { layer { name: 'ip' way: FACTORS } way: TABLE } clip_gradients: 1",
       "layer 'conv' goes by TABLE and 'ip' does not, and clip_gradients takes the norm of all"},
      {"exchange { way: FACTORS }", "scheme 'async' makes no update of all", "async"},
  };
  for (const Refusal& one : cases) expect(one);
}

}  // namespace
}  // namespace shoal::test::factors_test
