// Trains a small net to the end with every scheme, in simulated jobs of three workers, one of which
// is slow. process_schemes_test does so by real processes, once for each mechanism.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "shoal/base/text.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/cluster.h"
#include "shoal/simulate/simulation.h"
#include "shoal/table/scheme.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/solver_rig.h"

namespace shoal::test::every_scheme_test {
namespace {

constexpr int kIterations = 36, kWorkers = 3;

// Texts of `scheme { }` of a solver; at least one for each line of schemes.def.
const std::vector<std::string>& schemes() {
  static const std::vector<std::string> all = {
      "type: 'async'",
      "type: 'async' payload: DELTA factor: 0 local_steps: 2",
      "type: 'async' share_iterations: true",
      "type: 'bsp'",
      "type: 'dc_asgd' weighting { function: INVERSE }",
      "type: 'drift_barrier' max_advance: 4",
      "type: 'elastic' local_steps: 2",
      "type: 'elastic' local_steps: 2 exchange_order: BEFORE",
      "type: 'esync' epsilon: 0.001 max_steps: 4",
      "type: 'esync' epsilon: 0.001 max_steps: 4 mode: PULL",
      "type: 'grouped' groups: '0,2|1'",
      "type: 'local_steps' local_steps: 2 momentum_policy: AVERAGE global_momentum: 0.5",
      "type: 'ssp' staleness: 2",
      "type: 'streaming' local_steps: 4 fragments: 2 overlap: 1 global_momentum: 0.5",
      "type: 'streaming' local_steps: 4 fragments: 3 overlap: 1 quorum: 2 aggregation: STEPS",
      "type: 'streaming' local_steps: 2 fragments: 2 match_speeds: true max_steps: 8",
      "type: 'sync_backup' backup: 1",
      "type: 'sync_backup' backup: 1 share_iterations: true",
      "type: 'weed_out' max_version_lag: 4",
      "type: 'weed_out' weedout: 3 merge_every: 4"};
  return all;
}

TEST(SchemeCases, CoverEveryScheme) {
  for (const std::string& name : table::scheme_names())
    EXPECT_TRUE(std::ranges::any_of(
        schemes(), [&](const std::string& one) { return one.starts_with("type: '" + name + "'"); }))
        << "scheme " << name << " has no case in schemes()";
}

SolverParameter plain_solver(const std::string& records, const std::string& scheme) {
  SolverParameter param = parse_solver(
      str("base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' random_seed: 3 display: 0 max_iter: ",
          kIterations, " snapshot_after_train: false scheme { ", scheme, " }"),
      "solver");
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' "
      "transform_param { scale: 0.01 } data_param { source: '" +
          records +
          "' backend: DATUMFILE shared_file_system: true batch_size: 4 } } "
          "layer { name: 'one' type: 'InnerProduct' bottom: 'data' top: 'one' "
          "inner_product_param { num_output: 6 weight_filler { type: 'xavier' } } } "
          "layer { name: 'tanh' type: 'TanH' bottom: 'one' top: 'tanh' } "
          "layer { name: 'ip' type: 'InnerProduct' bottom: 'tanh' top: 'ip' "
          "inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } } "
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' "
          "top: 'loss' }",
      "net");
  return param;
}

class EveryScheme : public testing::TestWithParam<std::size_t> {};

// The slow worker is another one for each scheme, in turn.
TEST_P(EveryScheme, TrainsToTheEnd) {
  const std::string records = fresh_directory(str("every_scheme_", GetParam())) + "/records";
  make_digits(records);
  std::string cluster;
  for (std::size_t worker = 0; worker < kWorkers; ++worker)
    cluster += worker == GetParam() % kWorkers ? "worker { compute { ms: 5 } } "
                                               : "worker { compute { ms: 1 } } ";
  const simulate::Outcome outcome = or_throw(simulate::simulate(
      plain_solver(records, schemes()[GetParam()]),
      simulate::parse_cluster(cluster + "server { count: 2 }", "cluster"), {.test_every = 0.01}));
  ASSERT_GE(outcome.points.size(), 2u);
  EXPECT_LT(outcome.points.back().loss, 0.1) << "untrained it is log(4)";
  EXPECT_GE(outcome.points.back().iterations, kIterations);
}

INSTANTIATE_TEST_SUITE_P(All, EveryScheme, testing::Range(std::size_t{0}, schemes().size()),
                         [](const auto& info) {
                           std::string name = str(info.param, '_', schemes()[info.param]);
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace shoal::test::every_scheme_test
