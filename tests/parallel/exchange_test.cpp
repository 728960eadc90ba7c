// The list of exchanges of an updater: which layer goes by which, what they share, and how an
// exchange that sends nothing trains a layer beside a table's rows.
#include "shoal/solver/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "shoal/net/net.h"
#include "shoal/parallel/param_staging.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/io.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/solver_rig.h"

namespace shoal::test::exchange_test {
namespace {

// Two layers that learn, 'low' and 'high', on batches of 2 of 16 records.
SolverParameter two_layers(const std::string& name, const std::string& more = "") {
  const std::string path = fresh_directory(name) + "/records";
  or_throw(write_records("datumfile", path, small_records(16)));
  SolverParameter param = parse_solver(
      "base_lr: 0.0001 momentum: 0.9 lr_policy: 'fixed' random_seed: 3 max_iter: 8 display: 0 "
      "snapshot_after_train: false " +
          more,
      "x");
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: '" + path +
          "' backend: DATUMFILE batch_size: 2 shared_file_system: true } }"
          "layer { name: 'low' type: 'InnerProduct' bottom: 'data' top: 'low' inner_product_param "
          "{ num_output: 7 weight_filler { type: 'xavier' } } }"
          "layer { name: 'high' type: 'InnerProduct' bottom: 'low' top: 'high' "
          "inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }"
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'high' bottom: 'label' }",
      "x.prototxt");
  return param;
}

// The rule applied here to one layer: nothing is sent.
ExchangeOffer silent_offer(const SolverParameter& param, const std::string& layer) {
  ExchangeOffer offer = local_offer(param, "x");
  offer.takes = [layer](const Layer& of) { return of.name() == layer; };
  return offer;
}

// Trains to max_iter with 'high' by an exchange that sends nothing and the rest by a table's rows.
std::vector<std::vector<float>> train_mixed(const SolverParameter& param, int workers,
                                            std::vector<std::vector<float>>* rows = nullptr) {
  Job cluster(workers);
  std::vector<std::vector<float>> params(static_cast<std::size_t>(workers));
  const auto outcomes = cluster.run([&](int worker, table::Table& table) -> Status {
    const std::unique_ptr<Team> team = parallel::make_table_team(table);
    SolverOptions options = with_name("x");
    options.team = team.get();
    options.share = {.client = worker, .clients = workers};
    options.make_updater = [&](Net& net) {
      return make_updater(
          net, {silent_offer(param, "high"), parallel::table_offer(param, table, {.name = "x"})});
    };
    Solver solver(param, options);
    const Result<Ending> ending = solver.solve();
    params[static_cast<std::size_t>(worker)] = all_params(solver.net());
    return ending.ok() ? Status() : Status(ending.error());
  });
  for (const Status& outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << (outcome.ok() ? "" : outcome.error().message);
  if (rows) *rows = cluster.rows();
  return params;
}

std::vector<float> train_alone(const SolverParameter& param) {
  Solver solver(param, with_name("x"));
  or_throw(solver.solve());
  return all_params(solver.net());
}

TEST(Exchanges, OneWorkerOfAMixedNetHasTheBitsOfTheLocalSolver) {
  const SolverParameter param = two_layers("exchanges_one");
  EXPECT_EQ(train_alone(param), train_mixed(param, 1)[0]);
}

TEST(Exchanges, WhatSendsNothingIsInNoRowAndDiffersByWorker) {
  const SolverParameter param = two_layers("exchanges_two");
  std::vector<std::vector<float>> rows;
  const auto params = train_mixed(param, 2, &rows);
  std::size_t numbers = 0;
  for (const auto& row : rows) numbers += row.size();
  const std::size_t low = 4 * 7 + 7, high = 7 * 10 + 10;
  EXPECT_EQ(low, numbers);
  ASSERT_EQ(low + high, params[0].size());
  EXPECT_TRUE(std::equal(params[0].begin(), params[0].begin() + low, params[1].begin()));
  EXPECT_FALSE(std::equal(params[0].begin() + low, params[0].end(), params[1].begin() + low));
}

TEST(Exchanges, AClipTakesOneNormOfAll) {
  const SolverParameter param = two_layers("exchanges_clip", "clip_gradients: 0.01");
  SolverOptions options = with_name("x");
  options.make_updater = [&](Net& net) {
    return make_updater(net, {silent_offer(param, "high"), local_offer(param, "x")});
  };
  Solver solver(param, options);
  or_throw(solver.solve());
  EXPECT_EQ(train_alone(param), all_params(solver.net()));
}

TEST(Exchanges, ASnapshotOfAMixedNetIsThatOfOneRule) {
  const SolverParameter param =
      two_layers("exchanges_saved", "snapshot_prefix: '" + fresh_directory("exchanges_s") + "/s'");
  SolverOptions options = with_name("x");
  options.make_updater = [&](Net& net) {
    return make_updater(net, {silent_offer(param, "high"), local_offer(param, "x")});
  };
  Solver first(param, options);
  or_throw(first.step(4));
  ASSERT_TRUE(first.snapshot().ok());
  Solver second(param, with_name("x"));
  second.restore(param.snapshot_prefix() + "_iter_4.solverstate");
  or_throw(second.step(4));
  or_throw(first.step(4));
  EXPECT_EQ(all_params(first.net()), all_params(second.net()));
}

TEST(Exchanges, LayersThatShareAParamGoTogether) {
  Context context({});
  const Net net(parse_net("layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 "
                          "dim: 3 } } }"
                          "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' param { "
                          "name: 'w' } inner_product_param { num_output: 3 } }"
                          "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' param { "
                          "name: 'w' } inner_product_param { num_output: 3 } }"
                          "layer { name: 'c' type: 'InnerProduct' bottom: 'b' top: 'c' "
                          "inner_product_param { num_output: 3 } }",
                          "x"),
                context);
  const SolverParameter param = parse_solver("base_lr: 1 lr_policy: 'fixed'", "x");
  const ExchangeOffer rest = local_offer(param, "x");
  EXPECT_EQ((std::vector<std::size_t>{1, 1, 1, 0}),
            routes_of(net, {silent_offer(param, "c"), rest}));
  EXPECT_EQ((std::vector<std::size_t>{1, 1, 1, 1}),
            routes_of(net, {silent_offer(param, "b"), rest}))
      << "'a' owns the param";
  EXPECT_EQ((std::vector<std::size_t>{1, 0, 0, 1}),
            routes_of(net, {silent_offer(param, "a"), rest}));
  EXPECT_THROW(routes_of(net, {silent_offer(param, "a")}), ConfigError) << "'c' is left";
}

class Staging : public testing::TestWithParam<bool> {};

TEST_P(Staging, HoldsTheParamsAndTakesWhatWasAskedForAlone) {
  const bool in_place = GetParam();
  Context context({});
  Net net(parse_net("layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 "
                    "} } }"
                    "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' "
                    "inner_product_param { num_output: 4 bias_term: false } }",
                    "x"),
          context);
  Tensor& param = net.params()[0].blob->data;
  std::ranges::fill(param.host_mut(), 1.0f);
  const parallel::RowMap map(net, 1);
  parallel::ParamStaging staging(map, std::vector<bool>(map.rows().size(), in_place));
  staging.fix();
  const std::vector<table::RowId> rows = map.learning();
  ASSERT_EQ(1u, rows.size());
  const std::span<float> memory = staging.weights(rows[0]);
  EXPECT_EQ(in_place, memory.data() == param.host().data());
  EXPECT_EQ(std::vector<float>(12, 1.0f), std::vector<float>(memory.begin(), memory.end()));
  staging.expect(rows[0]);
  std::ranges::fill(memory, 2.0f);
  staging.upload(rows);
  EXPECT_EQ(2.0f, param.host()[11]);
  std::ranges::fill(param.host_mut(), 3.0f);  // a local step, say
  staging.upload(rows);
  EXPECT_EQ(3.0f, param.host()[0]) << "nothing was expected";
  EXPECT_EQ(memory.data(), staging.weights(rows[0]).data());
}

INSTANTIATE_TEST_SUITE_P(Homes, Staging, testing::Bool());

}  // namespace
}  // namespace shoal::test::exchange_test
