// Tests a solver whose params are in a table: its errors, its end, and its continuation.
// equivalence_test.cpp tests that it learns the same as one machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "shoal/net/net.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/blob.pb.h"
#include "shoal/proto/io.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/schemes.h"
#include "support/solver_rig.h"

namespace shoal::test::table_updater_test {
namespace {

// Returns a solver with batches of 2 of 16 records of 1 x 2 x 2, divided among the workers: of two,
// worker 1 has the odd ones.
SolverParameter regression(const std::string& path, const std::string& more = "") {
  SolverParameter param = parse_solver(
      "base_lr: 0.0001 lr_policy: 'fixed' random_seed: 3 max_iter: 8 display: 0 "
      "snapshot_after_train: false " +
          more,
      "job");
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: '" + path +
          "' backend: DATUMFILE batch_size: 2 shared_file_system: true } }"
          "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
          "num_output: 10 weight_filler { type: 'xavier' } } }"
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }",
      "job.prototxt");
  return param;
}

std::string records(const std::string& name, std::size_t at = 0, const std::string& odd = "") {
  const std::string path = fresh_directory(name) + "/records";
  Records all = small_records(16);
  if (!odd.empty()) all.at(at).second = odd;
  or_throw(write_records("datumfile", path, all));
  return path;
}

std::string infinite_record() {
  Datum datum;
  datum.set_channels(1), datum.set_height(2), datum.set_width(2), datum.set_label(1);
  for (const float x : {std::numeric_limits<float>::infinity(), 0.0f, 1.0f, 2.0f})
    datum.add_float_data(x);
  return datum.SerializeAsString();
}

std::string why_refused(const SolverParameter& param, const std::string& scheme) {
  Job cluster(1);
  std::string why;
  (void)cluster.run([&](int, table::Table& table) -> Status {
    SolverOptions options = with_name("job");
    options.make_updater = [&](Net& net) {
      return parallel::make_table_updater(param, net, table,
                                          {.name = "job", .scheme = table::scheme_of(scheme)});
    };
    try {
      Solver solver(param, options);
    } catch (const ConfigError& error) {
      why = error.what();
    }
    return {};
  });
  return why;
}

TEST(TableUpdater, RefusesWhatCannotBeHadTogether) {
  const std::string path = records("table_refuses");
  const struct {
    const char* more;
    const char* scheme;
    const char* why;
  } cases[] = {{"clip_gradients: 1", "ssp 1", "job: clip_gradients"},
               {"clip_gradients: 1", "async", "job: clip_gradients"},
               {"on_nan: SNAPSHOT", "bsp", "job: on_nan is SNAPSHOT"},
               {"on_nan: WARN", "bsp", "job: on_nan is WARN"},
               {"", "no_such", "job: "},
               {"", "sync_backup backup=9",
                "job: scheme 'sync_backup backup=9': backup is 9, but there are "},
               {"", "grouped groups=8", "a group has worker 8, but there are "}};
  for (const auto& c : cases) EXPECT_HAS(why_refused(regression(path, c.more), c.scheme), c.why);
  for (const char* scheme : {"bsp", "ssp 0", "ssp 3", "async"})
    EXPECT_EQ("", why_refused(regression(path), scheme)) << scheme;
  EXPECT_EQ("", why_refused(regression(path, "clip_gradients: 1 on_nan: SKIP"), "bsp"));
}

TEST(TableUpdater, StartsEveryWorkerFromTheChiefsWeights) {
  const auto distort = [](int worker, Solver& solver) {
    for (const NetParam& param : solver.net().params())
      for (float& x : param.blob->data.host_mut()) x += static_cast<float>(worker);
  };
  const SolverParameter param = regression(records("table_start"));
  const JobResult plain = train(param, {.workers = 2, .stops = {0, 4}}),
                  job = train(param, {.workers = 2, .stops = {0, 4}, .before = distort});
  ASSERT_TRUE(plain.ok() && job.ok()) << plain.why() << job.why();
  EXPECT_EQ(plain.weights, job.weights);
}

TEST(TableUpdater, LearnsUnderEveryScheme) {
  const std::string path = fresh_directory("table_schemes") + "/digits";
  make_digits(path);
  SolverParameter param = regression(path, "momentum: 0.9");
  param.set_base_lr(0.02F);
  param.mutable_net_param()->mutable_layer(0)->mutable_transform_param()->set_scale(0.01F);
  for (const char* scheme : {"bsp", "ssp 1", "ssp 2", "async"}) {
    const JobResult job =
        train(param, {.workers = 3, .servers = 2, .scheme = scheme, .stops = {40}});
    ASSERT_TRUE(job.ok()) << scheme << ": " << job.why();
    for (const auto& losses : job.losses) EXPECT_LT(losses.back(), 0.5F * losses.front()) << scheme;
  }
}

TEST(TableUpdater, ANonFiniteGradientEndsTheJobForAll) {
  const std::string path = records("table_nan", 9, infinite_record());
  const JobResult job = train(regression(path), {.workers = 2, .stops = {8}});
  ASSERT_EQ(2u, job.outcomes.size());
  ASSERT_FALSE(job.outcomes[0].ok());
  ASSERT_FALSE(job.outcomes[1].ok());
  EXPECT_EQ(Code::kNonFinite, job.outcomes[1].error().code);
  EXPECT_EQ(2u, job.losses[1].size());
}

// Leaves worker 1's third iteration out of the weights: the others' gradients are the mean. When
// all leave one out, nothing is updated.
TEST(TableUpdater, LeavesANonFiniteIterationOut) {
  const std::string path = records("table_skip", 9, infinite_record());
  const JobResult job = train(regression(path, "on_nan: SKIP momentum: 0.9"),
                              {.workers = 2, .servers = 2, .stops = {2, 3, 8}});
  ASSERT_TRUE(job.ok()) << job.why();
  EXPECT_EQ(job.weights[0], job.weights[1]);
  EXPECT_NE(job.at(0), job.at(1));
  EXPECT_NE(job.at(1), job.at(2));
  for (const float x : job.at(2)) ASSERT_TRUE(std::isfinite(x));

  const std::string lonely = records("table_skip_alone", 5, infinite_record());
  const SolverParameter param = regression(lonely, "on_nan: SKIP momentum: 0.9");
  const JobResult alone = train(param, {.stops = {2, 3, 8}}),
                  table = train(param, {.workers = 1, .stops = {2, 3, 8}});
  ASSERT_TRUE(alone.ok() && table.ok()) << alone.why() << table.why();
  EXPECT_EQ(alone.at(0), alone.at(1));
  EXPECT_EQ(alone.weights, table.weights);
}

TEST(TableUpdater, ADataErrorOfOneEndsTheJobForAll) {
  const std::string path = records("table_data", 9, "no Datum");
  const JobResult job = train(regression(path), {.workers = 2, .stops = {8}});
  ASSERT_FALSE(job.outcomes[0].ok());
  ASSERT_FALSE(job.outcomes[1].ok());
  EXPECT_EQ(Code::kData, job.outcomes[1].error().code);
}

// The last iteration's gradients are there to be saved, and the same with or without a table.
TEST(TableUpdater, KeepsTheLastGradients) {
  const SolverParameter param = regression(records("table_gradients"), "snapshot_diff: true");
  std::vector<Weights> gradients;
  const auto look = [&](int, Solver& solver) {
    Weights& all = gradients.emplace_back();
    for (const NetParam& p : solver.net().params())
      all.insert(all.end(), p.blob->grad.host().begin(), p.blob->grad.host().end());
  };
  ASSERT_TRUE(train(param, {.stops = {3}, .after = look}).ok());
  ASSERT_TRUE(train(param, {.workers = 1, .stops = {3}, .after = look}).ok());
  ASSERT_EQ(2u, gradients.size());
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_TRUE(std::ranges::any_of(gradients[1], [](float g) { return g != 0; }));
}

class TableUpdaterOf : public testing::TestWithParam<const char*> {};

// Covers all state of a run: momentum at the servers, shuffled data, crops, dropout, running means.
TEST_P(TableUpdaterOf, ResumesWithTheSameBits) {
  const std::string path = fresh_directory(std::string("table_resume_") + GetParam()) + "/digits";
  make_digits(path);
  SolverParameter param =
      small_solver(path, path + "_snapshot",
                   std::string("type: '") + GetParam() + "' snapshot: 10 max_iter: 20" +
                       (std::string(GetParam()) == "AdaGrad" || std::string(GetParam()) == "RMSProp"
                            ? " momentum: 0"
                            : ""));
  share_data(*param.mutable_net_param());
  const std::string state = param.snapshot_prefix() + "_iter_10.solverstate";
  const auto restore = [&](int, Solver& solver) { solver.restore(state); };
  const JobResult whole = train(param, {.workers = 2, .servers = 2, .stops = {10, 20}});
  const JobResult rest =
      train(param, {.workers = 2, .servers = 2, .stops = {10, 20}, .before = restore});
  ASSERT_TRUE(whole.ok() && rest.ok()) << whole.why() << rest.why();
  EXPECT_EQ(whole.at(0), rest.at(0));
  EXPECT_EQ(whole.at(1), rest.at(1));
  EXPECT_EQ(whole.losses[1].back(), rest.losses[1].back());
}

INSTANTIATE_TEST_SUITE_P(Types, TableUpdaterOf,
                         testing::Values("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta",
                                         "Adam"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace shoal::test::table_updater_test
