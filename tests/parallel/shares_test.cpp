// Tests workers that divide shared data by weights or by speed: their records, their batches, and
// the weights of their gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "shoal/data/sequence.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/parallel/tuning/grouping.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulation.h"
#include "shoal/solver/recipe.h"
#include "shoal/table/scheme.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/job.h"
#include "support/schemes.h"
#include "support/solver_rig.h"

namespace shoal::test::shares_test {
namespace {

using Batches = std::vector<std::int64_t>;

// ---- the order of records ----

TEST(ShareSequence, NetsTakeSlicesOfABatchOfAll) {
  const std::vector<std::uint64_t> batches = {3, 1, 2};
  for (const bool shuffle : {false, true}) {
    std::vector<std::uint64_t> in_slices, straight;
    Sequence whole({.seed = 5, .shuffle = shuffle});
    std::vector<Sequence> nets;
    for (std::uint64_t net = 0; net < 3; ++net)
      nets.emplace_back(SequenceOptions{
          .seed = 5, .shuffle = shuffle, .first = net, .step = 3, .base = 7, .batches = batches});
    for (std::uint64_t iteration = 0; iteration < 9; ++iteration)
      for (std::uint64_t net = 0; net < 3; ++net)
        for (std::uint64_t i = 0; i < batches[net]; ++i) {
          const std::uint64_t n = iteration * batches[net] + i;
          in_slices.push_back(nets[net].record(n, 20));
          straight.push_back(whole.record(7 + straight.size(), 20));
          EXPECT_EQ(nets[net].random(n), whole.random(6 + straight.size()));
        }
    EXPECT_EQ(in_slices, straight);
  }
}

// ---- batches ----

SolverParameter digits(const std::string& folder, int batch, const std::string& more = "") {
  const std::string path = fresh_directory(folder) + "/digits";
  make_digits(path);
  SolverParameter param = parse_solver(
      "base_lr: 0.02 momentum: 0.9 lr_policy: 'fixed' random_seed: 3 display: 0 "
      "snapshot_after_train: false " +
          (more.find("max_iter") == std::string::npos ? "max_iter: 12 " + more : more),
      "x");
  const std::string net = str(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: '", path,
      "' backend: DATUMFILE batch_size: ", batch,
      " shared_file_system: true } transform_param { scale: 0.01 } }"
      "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
      "num_output: 10 weight_filler { type: 'xavier' } } }"
      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }");
  *param.mutable_net_param() = parse_net(net, "net");
  return param;
}

Share share_of(std::vector<double> weights, bool in_step = true) {
  Share share{.clients = static_cast<int>(weights.size()), .in_step = in_step};
  share.weights = std::move(weights);
  return share;
}

TEST(ShareBatches, FollowTheWeightsInLockstep) {
  const SolverParameter param = digits("share_batches", 28);
  EXPECT_EQ(batches_of(param, "x", share_of({1, 2, 4})), (Batches{12, 24, 48}));
  EXPECT_EQ(batches_of(param, "x", share_of({})), Batches());
  EXPECT_EQ(batches_of(param, "x", share_of({1, 2, 4}, false)), Batches()) << "each at its speed";
  EXPECT_EQ(batches_of(digits("share_batches", 28, "batch_by: EQUAL"), "x", share_of({1, 2, 4})),
            Batches());
  EXPECT_EQ(
      batches_of(digits("share_batches", 28, "batch_by: SPEED"), "x", share_of({1, 2, 4}, false)),
      (Batches{12, 24, 48}));
  Share replicas = share_of({1, 3});
  replicas.replicas = 2;
  EXPECT_EQ(batches_of(digits("share_batches", 4), "x", replicas), (Batches{2, 6})) << "of a net";
}

TEST(ShareBatches, HaveAnItemAtLeast) {
  EXPECT_EQ(batches_of(digits("share_least", 4), "x", share_of({1, 1e6, 1e6})), (Batches{2, 5, 5}));
  EXPECT_EQ(batches_of(digits("share_least", 1), "x", share_of({1, 1, 100})), (Batches{1, 1, 1}));
}

TEST(ShareBatches, CountByTheirItems) {
  const SolverParameter param = digits("share_weights", 28);
  Share share = share_of({1, 2, 4});
  std::vector<float> weights;
  for (share.client = 0; share.client < 3; ++share.client) {
    weights.push_back(contribution_weight(param, "x", share));
    EXPECT_EQ(train_net_of(param, "x", share).layer(0).data_param().batch_size(),
              12u << share.client);
  }
  EXPECT_EQ(weights, (std::vector<float>{12 / 28.f, 24 / 28.f, 48 / 28.f}));
}

TEST(ShareBatches, OfSeveralLayersMustBeOne) {
  SolverParameter param = digits("share_two", 8);
  LayerParameter second = param.net_param().layer(0);
  second.set_name("other");
  second.set_top(0, "other"), second.set_top(1, "other_label");
  second.mutable_data_param()->set_batch_size(6);
  *param.mutable_net_param()->add_layer() = second;
  try {
    batches_of(param, "x", share_of({1, 3}));
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              "x: workers have batches by weight, and the batch_size of layer 'other', 6, differs "
              "from that of the first data layer; make them equal");
  }
}

TEST(ShareBatches, NeedALayerThatHasThem) {
  SolverParameter param = digits("share_none", 8);
  *param.mutable_net_param() = parse_net(
      "layer { name: 'd' type: 'DummyData' top: 'd' dummy_data_param { shape { dim: 2 } } }", "d");
  try {
    batches_of(param, "x", share_of({1, 3}));
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              "x: workers have batches by weight, and the train net has no layer with a batch_size "
              "to divide; batch_by: EQUAL leaves its batches as they are");
  }
}

// ---- the merge ----

TEST(ShareSum, AtNoStalenessAFactorMakesASumOfTheMean) {
  const std::vector<table::WorkerView> workers(2, {.pushed = 1});
  const std::vector<table::Contribution> held{{.worker = 0, .weight = 0.5},
                                              {.worker = 1, .weight = 1.5}};
  const auto merge_of = [&](const char* words) {
    return table::make_scheme(words)
        .value()
        ->next_merge({.workers = workers, .held = held})
        .value();
  };
  EXPECT_EQ(merge_of("ssp 0").scale, 0.5f);
  EXPECT_EQ(merge_of("ssp 0 factor=1").scale, 1.0f);
  EXPECT_EQ(merge_of("ssp 0 factor=4").scale, 0.25f);
  EXPECT_EQ(merge_of("ssp 0 factor=1").weights, (std::vector<float>{0.5f, 1.5f}));
}

// ---- a job ----

struct Trained {
  std::string why;
  std::vector<float> params;  // the chief's
  std::vector<std::int64_t> batches;
};

Trained train(const SolverParameter& param, int workers, const std::vector<double>& weights) {
  Trained trained;
  trained.batches.resize(static_cast<std::size_t>(workers));
  Job cluster(workers, 2);
  const auto outcomes = cluster.run([&](int worker, table::Table& table) -> Status {
    parallel::RunOptions options;
    options.weights = weights;
    options.wrap = [&, worker](Net& net, std::unique_ptr<Updater> updater, const SolverParameter&) {
      trained.batches[static_cast<std::size_t>(worker)] = batch_size(net);
      return updater;
    };
    try {
      const Result<Ending> ending =
          parallel::run(parallel::read_job_spec(param, "x"), options, &table);
      return ending.ok() ? Status() : Status(ending.error());
    } catch (const ConfigError& error) {
      return error.error();
    }
  });
  for (const Status& outcome : outcomes)
    if (!outcome.ok() && trained.why.empty()) trained.why = outcome.error().message;
  for (const std::vector<float>& row : cluster.rows())
    trained.params.insert(trained.params.end(), row.begin(), row.end());
  return trained;
}

TEST(ShareByWeight, BspIsOneMachineWithTheWholeBatch) {
  const Trained trained = train(digits("share_bsp", 4), 3, {1, 2, 3});
  EXPECT_EQ(trained.why, "");
  EXPECT_EQ(trained.batches, (Batches{2, 4, 6}));
  Solver alone(digits("share_bsp", 12), with_name("x"));
  or_throw(alone.solve());
  const std::vector<float> params = all_params(alone.net());
  ASSERT_EQ(trained.params.size(), params.size());
  for (std::size_t i = 0; i < params.size(); ++i)
    EXPECT_NEAR(trained.params[i], params[i], 1e-5 * std::max(1.0f, std::abs(params[i]))) << i;
}

TEST(ShareByWeight, EachAtItsSpeedHasAPartOfTheEpoch) {
  const Trained trained = train(digits("share_async", 4, "scheme { type: 'async' }"), 3, {1, 2, 3});
  EXPECT_EQ(trained.why, "");
  EXPECT_EQ(trained.batches, (Batches{4, 4, 4}));
}

TEST(ShareByWeight, ContradictionsAreNamed) {
  const auto why = [](const std::string& more, const std::vector<double>& weights) {
    return train(digits("share_wrong", 4, more), 2, weights).why;
  };
  EXPECT_EQ(why("share_by: WEIGHT batch_by: SPEED", {1, 2}),
            "x: batch_by is SPEED and share_by WEIGHT; batches are divided as the data are: leave "
            "one out, or give both alike");
  EXPECT_EQ(why("share_by: WEIGHT", {}),
            "x: shares by WEIGHT, and no worker has a weight: give weight= in the machinefile, or "
            "--data_sharding");
  EXPECT_EQ(why("", {1, 2, 3}), "x: 3 weights are given for the shares of 2 workers");
  EXPECT_EQ(why("share_by: SPEED share_interval: -1", {}),
            "x: share_interval is -1; it must be 0 or more");
}

// ---- by speed ----

constexpr const char* kSpeeds124 =
    "worker { compute { ms: 40 } } worker { compute { ms: 20 } } worker { compute { ms: 10 } } "
    "card { latency_ms: 0.01 }";

simulate::Outcome simulated(const SolverParameter& param, const std::string& cluster) {
  return or_throw(
      simulate::simulate(param, simulate::parse_cluster(cluster, "cluster"), {.name = "x"}));
}

// An iteration of equal batches takes 40 ms; divided 12, 24, 48, all take 40 * 12 / 28 = 17.1 ms.
TEST(ShareBySpeed, AllComeToTheEndOfAnIterationTogether) {
  const std::string longer = "max_iter: 130 ";
  const double equal = simulated(digits("share_speed", 28, longer), kSpeeds124).seconds;
  const simulate::Outcome divided = simulated(
      digits("share_speed", 28, longer + "share_by: SPEED share_interval: 20"), kSpeeds124);
  EXPECT_NEAR(equal, 130 * 0.040, 0.1);
  EXPECT_NEAR(divided.seconds, 20 * 0.040 + 110 * 0.0171, 0.1);
  const double samples = divided.points.back().samples;
  EXPECT_EQ(samples, 130 * 84) << "the batch of all stays what it was";
}

TEST(ShareBySpeed, FollowsASpeedThatChanges) {
  LogLines lines;
  const simulate::Outcome outcome =
      simulated(digits("share_change", 8, "max_iter: 60 batch_by: SPEED share_interval: 10"),
                "worker { compute { ms: 10 } } worker { compute { ms: 10 } slowdown { from: 0.2 "
                "factor: 3 } } card { latency_ms: 0.01 }");
  EXPECT_TRUE(lines.has("Batch 16 divided as 12, 4 among workers 2.*"));
  EXPECT_EQ(outcome.points.back().samples, 60 * 16);
}

TEST(ShareBySpeed, ChangesNothingWhereLittleIsGained) {
  const std::vector<double> equal = {1, 1}, speeds = {10, 11}, apart = {10, 20};
  EXPECT_FALSE(parallel::worth_changing(equal, speeds));
  EXPECT_TRUE(parallel::worth_changing(equal, apart));
  EXPECT_FALSE(parallel::worth_changing(apart, apart));
  EXPECT_TRUE(parallel::worth_changing(apart, equal));
}

}  // namespace
}  // namespace shoal::test::shares_test
