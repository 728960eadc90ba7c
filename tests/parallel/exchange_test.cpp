// Tests the exchanges of a net: one list over all of them, the versions of its rows, one worker's
// rows in another's run, and the memory for rows.
#include "shoal/solver/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "shoal/net/net.h"
#include "shoal/parallel/rows/param_staging.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/io.h"
#include "shoal/solver/row_state.h"
#include "support/exchange_job.h"
#include "support/job.h"
#include "support/schemes.h"
#include "support/solver_rig.h"

namespace shoal::test::exchange_test {
namespace {

// ---- rows and their states ----

// 'conv' goes by the table, 'turned' by factors, 'ip' by a ring, the rest by the table.
constexpr const char* kMixed =
    " exchange { layer { name: 'turned' way: FACTORS } layer { name: 'ip' way: RING } way: TABLE }";

using ExchangeRows = ExchangeJob;

// Calls look(worker, solver, updater) after `iterations` iterations of two workers, all updates in
// the params.
void train_rows(const SolverParameter& param, const std::string& scheme, int iterations,
                const std::function<void(int, Solver&, Updater&)>& look,
                const std::function<void(int, Solver&, Updater&)>& before = {}) {
  Job cluster(2, 2);
  const auto outcomes = cluster.run([&](int worker, table::Table& table) -> Status {
    const std::unique_ptr<Team> team = parallel::make_table_team(table);
    SolverOptions options = with_name("job");
    options.team = team.get();
    options.share = {.client = worker, .clients = 2};
    Updater* updater = nullptr;
    options.make_updater = [&](Net& net) {
      auto made = parallel::make_table_updater(param, net, table,
                                               {.name = "job", .scheme = table::scheme_of(scheme)});
      updater = made.get();
      return made;
    };
    Solver solver(param, options);
    if (before) before(worker, solver, *updater);
    if (const Result<Ending> ending = solver.step(iterations); !ending.ok()) return ending.error();
    if (Status status = updater->settle(Settle::kTeams); !status.ok()) return status;
    if (worker == 0)
      if (Status status = updater->state().prepare_save(); !status.ok()) return status;
    look(worker, solver, *updater);
    return table.finish(solver.iteration());
  });
  for (const Status& outcome : outcomes)
    ASSERT_TRUE(outcome.ok()) << (outcome.ok() ? "" : outcome.error().message);
}

TEST_F(ExchangeRows, CoverEachNumberOnceAndHaveTheVersionOfTheirUpdates) {
  const SolverParameter param = job(2, str(kRules[0], kMixed));
  const auto look = [](int worker, Solver& solver, Updater& updater) {
    std::map<std::size_t, std::size_t> ends;  // by param
    for (const StateRow& row : updater.state().rows()) {
      const NetParam& of = solver.net().params()[row.param];
      EXPECT_EQ(ends[row.param], row.offset) << "param " << row.param;
      ends[row.param] += row.length;
      EXPECT_EQ(row.version, of.lr_mult == 0 ? 0 : 5)
          << "worker " << worker << ", param " << row.param;
    }
    ASSERT_EQ(ends.size(), solver.net().params().size());
    for (const auto& [param, end] : ends)
      EXPECT_EQ(end, static_cast<std::size_t>(solver.net().params()[param].blob->data.count()));
  };
  train_rows(param, "bsp", 5, look);
}

// Under ssp each row has its own versions of its own numbers.
TEST_F(ExchangeRows, OfOneVersionHaveTheSameNumbersOnAllWorkers) {
  std::map<std::tuple<std::size_t, std::size_t, std::int64_t>, std::vector<float>> known;
  const auto look = [&](int, Solver& solver, Updater& updater) {
    for (const StateRow& row : updater.state().rows()) {
      const RowState state = state_of(solver.net(), updater.state(), row);
      const std::vector<float> numbers(state.numbers.begin(), state.numbers.end());
      const auto [found, is_new] = known.try_emplace({row.param, row.offset, row.version}, numbers);
      EXPECT_EQ(found->second, numbers) << "param " << row.param << ", version " << row.version;
    }
  };
  train_rows(job(2, str(kRules[0])), "ssp 2", 4, look);
  EXPECT_FALSE(known.empty());
}

// The rows of a run, given to another, continue there as if they had been there: with momentum, by
// each exchange. The records are as many as five iterations read.
TEST_F(ExchangeRows, ARunGoesOnFromTheRowsOfAnother) {
  SolverParameter param = job(2, str(kRules[0], kMixed));
  param.set_lr_policy("fixed");
  struct Kept {
    StateRow row;
    std::vector<float> numbers;
    std::vector<std::vector<float>> histories;
  };
  std::vector<Kept> kept;
  const auto keep = [&](int worker, Solver& solver, Updater& updater) {
    if (worker != 0) return;
    for (const StateRow& row : updater.state().rows()) {
      const RowState state = state_of(solver.net(), updater.state(), row);
      Kept& one = kept.emplace_back(Kept{row, {state.numbers.begin(), state.numbers.end()}, {}});
      for (const auto& history : state.histories)
        one.histories.emplace_back(history.begin(), history.end());
    }
  };
  const auto give = [&](int worker, Solver& solver, Updater& updater) {
    for (const Kept& one : kept) {
      if (worker != 0) break;
      const RowState state = state_of(solver.net(), updater.state(), one.row);
      std::ranges::copy(one.numbers, state.numbers.begin());
      for (std::size_t h = 0; h < one.histories.size(); ++h)
        std::ranges::copy(one.histories[h], state.histories[h].begin());
    }
    updater.state().start_at(0, {});
  };
  std::vector<float> whole, rest;
  const auto look_at = [](std::vector<float>& params) {
    return [&params](int worker, Solver& solver, Updater&) {
      if (worker == 0) params = all_params(solver.net());
    };
  };
  train_rows(param, "bsp", 5, keep);
  train_rows(param, "bsp", 10, look_at(whole));
  train_rows(param, "bsp", 5, look_at(rest), give);
  EXPECT_EQ(whole, rest);
}

// ---- the memory of rows ----

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
