// Tests several nets of one process as one: the numbers they share and keep, and their messages.
// equivalence_test.cpp tests that they learn the same as one net.
#include "shoal/parallel/replicas/replicas.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "shoal/net/net.h"
#include "shoal/parallel/replicas/replica_barrier.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/io.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/solver_rig.h"

namespace shoal::test::replicas_test {
namespace {

// A replica that comes early waits for this iteration's params, not the last one's.
TEST(ReplicaBarrier, ParamsAreReadyForOneIteration) {
  parallel::ReplicaBarrier barrier(2, 4);
  ASSERT_OK(barrier.begin());
  ASSERT_TRUE(barrier.wait_begin(1));
  barrier.params_ready(3);
  ASSERT_OK(barrier.wait_params(3));
  barrier.finished(1, {});
  ASSERT_OK(barrier.begin());
  ASSERT_TRUE(barrier.wait_begin(1));
  barrier.params_ready(1);
  ASSERT_OK(barrier.wait_params(1));
  const std::jthread solver([&] { EXPECT_TRUE(barrier.give_up().ok()); });
  EXPECT_FAILS_WITH("given up", barrier.wait_params(2));
  barrier.finished(1, {});
}

// A replica may fail when its last backward is done, for example one that reads its loss from a
// device.
TEST(ReplicaBarrier, AnErrorAfterTheLastBackwardEndsTheIteration) {
  parallel::ReplicaBarrier barrier(2, 1);
  ASSERT_OK(barrier.begin());
  ASSERT_TRUE(barrier.wait_begin(1));
  barrier.finished_backward(1, 0);
  ASSERT_OK(barrier.wait_backward(0));
  barrier.finished(1, Error{Code::kDevice, "its loss did not come"});
  EXPECT_FAILS_WITH("its loss did not come", barrier.wait_finished());
  ASSERT_OK(barrier.begin());
  ASSERT_TRUE(barrier.wait_begin(1));
  barrier.finished(1, {});
  ASSERT_OK(barrier.wait_finished());
}

// Writes 16 records of 1 x 2 x 2, with `odd` in the place of record `at`.
std::string records_with(const std::string& name, std::size_t at, const std::string& odd) {
  const std::string path = fresh_directory(name) + "/records";
  Records records = small_records(16);
  records.at(at).second = odd;
  or_throw(write_records("datumfile", path, records));
  return path;
}

std::string floats(std::initializer_list<float> numbers) {
  Datum datum;
  datum.set_channels(1), datum.set_height(2), datum.set_width(2), datum.set_label(1);
  datum.mutable_float_data()->Add(numbers.begin(), numbers.end());
  return datum.SerializeAsString();
}

// Returns a solver with batches of 2 for each of two replicas: iteration t reads records 4 t to 4 t
// + 3, of which replica 1 has the odd ones.
SolverParameter regression(const std::string& path, const std::string& more = "") {
  SolverParameter param = parse_solver(
      "base_lr: 0.0001 lr_policy: 'fixed' random_seed: 3 max_iter: 4 display: 0 "
      "snapshot_after_train: false " +
          more,
      "job");
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: '" + path +
          "' backend: DATUMFILE batch_size: 2 } }"
          "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
          "num_output: 10 weight_filler { type: 'xavier' } } }"
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }",
      "job.prototxt");
  return param;
}

TEST(Replicas, AnErrorOfAnyEndsTheIterationWithIt) {
  for (const std::size_t at : {8u, 9u}) {  // replica 0's, replica 1's, in iteration 2
    const std::string path = records_with(str("replica_error_", at), at, "no Datum");
    const JobResult job = train(regression(path), {.replicas = 2, .stops = {4}});
    ASSERT_FALSE(job.ok());
    EXPECT_EQ(Code::kData, job.outcomes[0].error().code);
    EXPECT_HAS(job.why(), "layer 'data'");
    EXPECT_EQ(at == 9, job.why().starts_with("replica 1: ")) << job.why();
    EXPECT_EQ(2u, job.losses[0].size());
  }
}

TEST(Replicas, WhatWasLearnedBeforeAnErrorIsSaved) {
  const std::string path = records_with("replica_rescue", 9, "no Datum"),
                    prefix = path + "_snapshot";
  const SolverParameter param = regression(path, "snapshot: 100 snapshot_prefix: '" + prefix + "'");
  const JobShape ended{.replicas = 2, .stops = {}, .after = [](int, Solver& solver) {
                         EXPECT_FAILS_WITH(
                             "a snapshot has the state of iteration 2; a run from it "
                             "reads the same records again",
                             solver.solve());
                       }};
  ASSERT_TRUE(train(param, ended).ok());
  // The record is corrected.
  ASSERT_OK(write_records("datumfile", path, small_records(16), WriteMode::kTruncate));
  const auto restore = [&](int, Solver& solver) { solver.restore(prefix + "_iter_2.solverstate"); };
  const JobResult rest = train(param, {.replicas = 2, .stops = {4}, .before = restore}),
                  whole = train(param, {.replicas = 2, .stops = {4}});
  ASSERT_TRUE(rest.ok() && whole.ok()) << rest.why() << whole.why();
  EXPECT_EQ(whole.at(0), rest.at(0));
}

// An infinite pixel makes the replica's loss and gradients NaN; the solver's own net does not read
// it.
TEST(Replicas, ALossThatIsNotFiniteIsNoticedInAny) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::size_t at : {8u, 9u}) {
    const std::string path = records_with(str("replica_nan_", at), at, floats({inf, 0, 1, 2}));
    const LogLines log;
    const JobResult stopped = train(regression(path), {.replicas = 2, .stops = {4}});
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(Code::kNonFinite, stopped.outcomes[0].error().code) << stopped.why();
    EXPECT_EQ(at == 9, log.has("replica 1, whose loss is .*nan: the first that is not finite: .*"))
        << at;

    const JobResult skipped =
        train(regression(path, "on_nan: SKIP"), {.replicas = 2, .stops = {2, 3, 4}});
    ASSERT_TRUE(skipped.ok()) << skipped.why();
    EXPECT_EQ(skipped.at(0), skipped.at(1));
    EXPECT_NE(skipped.at(1), skipped.at(2));
  }
}

// Returns a solver with shuffled records, crops, dropout and running means.
SolverParameter digits(const std::string& name, const std::string& more = "") {
  const std::string path = fresh_directory(name) + "/digits";
  make_digits(path);
  return small_solver(path, path + "_snapshot", more);
}

TEST(Replicas, ResumeWithTheSameBits) {
  const SolverParameter param = digits("replica_resume");
  const JobResult whole = train(param, {.replicas = 3, .stops = {6, 12}});
  const JobResult half =
      train(param, {.replicas = 3, .stops = {6}, .after = [](int, Solver& solver) {
                      ASSERT_OK(solver.snapshot());
                    }});
  const auto restore = [&](int, Solver& solver) {
    solver.restore(param.snapshot_prefix() + "_iter_6.solverstate");
  };
  const JobResult rest = train(param, {.replicas = 3, .stops = {6, 12}, .before = restore});
  ASSERT_TRUE(whole.ok() && half.ok() && rest.ok()) << whole.why() << half.why() << rest.why();
  EXPECT_EQ(whole.at(0), rest.at(0));
  EXPECT_EQ(whole.at(1), rest.at(1));
}

TEST(Replicas, GoOnInAnotherNumber) {
  const SolverParameter param = digits("replica_another_number");
  ASSERT_TRUE(train(param, {.replicas = 2,
                            .stops = {6},
                            .after = [](int, Solver& solver) { ASSERT_OK(solver.snapshot()); }})
                  .ok());
  const LogLines log;
  const auto restore = [&](int, Solver& solver) {
    solver.restore(param.snapshot_prefix() + "_iter_6.solverstate");
  };
  const JobResult rest = train(param, {.replicas = 3, .stops = {8}, .before = restore});
  ASSERT_TRUE(rest.ok()) << rest.why();
  EXPECT_TRUE(log.has(".* is from a run with 2 replicas; now there are 3: .*"));
}

// Each replica alone, as a net of its own, gives its running means after one iteration.
TEST(Replicas, RunningSumsAreTheMeansOfAll) {
  const SolverParameter param = digits("replica_sums");
  const auto sums_of = [](Solver& solver) {
    std::vector<float> sums;
    for (const auto& layer : solver.net().layers())
      if (layer->name() == "norm")
        for (const auto& blob : layer->params())
          sums.insert(sums.end(), blob->data.host().begin(), blob->data.host().end());
    return sums;
  };
  std::vector<float> together, mean;
  ASSERT_TRUE(train(param, {.replicas = 2,
                            .stops = {1},
                            .after = [&](int, Solver& solver) { together = sums_of(solver); }})
                  .ok());
  for (const int replica : {0, 1}) {
    SolverOptions options = with_name("one");
    options.share = {.replica = replica, .replicas = 2};
    Solver solver(param, options);
    ASSERT_OK(solver.step(1));
    const std::vector<float> sums = sums_of(solver);
    mean.resize(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) mean[i] += sums[i] / 2;
  }
  ASSERT_EQ(7u, mean.size());
  for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_FLOAT_EQ(mean[i], together[i]) << i;
}

TEST(Replicas, WaitForNobodyWhenTheSolverIsGone) {
  const std::string path = records_with("replica_gone", 8, "no Datum");
  for (int i = 0; i < 20; ++i)
    EXPECT_FALSE(train(regression(path), {.replicas = 4, .stops = {4}}).ok());
}

TEST(Replicas, ATestBetweenIterationsIsTheSolversAlone) {
  const SolverParameter param = digits("replica_tests", "test_iter: 2 test_interval: 2");
  const JobResult tested = train(param, {.replicas = 2, .stops = {6}});
  SolverParameter untested = param;
  untested.clear_test_iter(), untested.clear_test_interval();
  const JobResult plain = train(untested, {.replicas = 2, .stops = {6}});
  ASSERT_TRUE(tested.ok() && plain.ok()) << tested.why() << plain.why();
  EXPECT_EQ(plain.at(0), tested.at(0));
}

}  // namespace
}  // namespace shoal::test::replicas_test
