// Tests means of deltas with a rate and a momentum of the table's, against the same sums done here,
// and that a layer's result leaves early.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "shoal/net/net.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/io.h"
#include "shoal/table/scheme/together.h"
#include "support/data_files.h"
#include "support/forwarding_table.h"
#include "support/job.h"
#include "support/schemes.h"
#include "support/solver_rig.h"

namespace shoal::test::global_momentum_test {
namespace {

using table::Clock;
using table::Start;
using table::Task;
using table::TaskReport;
using table::Verdict;

// ---- by hand ----

constexpr double kRate = 0.1, kMomentum = 0.5, kFirst = 0.5, kTargets[] = {1, 3};

// Returns a solver of one number w whose loss is (w - target)^2 / 2 on each worker.
SolverParameter one_number(const std::string& more = "") {
  SolverParameter param =
      parse_solver(str("base_lr: ", kRate, " momentum: ", kMomentum,
                       " lr_policy: 'fixed' random_seed: 3 display: 0 max_iter: 100 ", more),
                   "job");
  *param.mutable_net_param() = parse_net(
      str("layer { name: 'data' type: 'DummyData' top: 'x' top: 'target' dummy_data_param { shape "
          "{ dim: 1 dim: 1 } shape { dim: 1 dim: 1 }"
          " data_filler { value: 1 } data_filler { value: 1 } } }"
          "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'w' inner_product_param { "
          "num_output: 1 bias_term: false weight_filler { value: ",
          kFirst,
          " } } }"
          "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'w' bottom: 'target' top: 'loss' }"),
      "job.prototxt");
  return param;
}

void aim(int worker, SolverParameter& param) {
  param.mutable_net_param()
      ->mutable_layer(0)
      ->mutable_dummy_data_param()
      ->mutable_data_filler(1)
      ->set_value(static_cast<float>(kTargets[worker]));
}

struct Hand {
  double w = kFirst, h = 0;
  double step(int worker) { return w -= h = kMomentum * h + kRate * (w - kTargets[worker]); }
};

// Returns the table's number after each of `rounds`; worker k makes steps(k) in each.
std::vector<double> by_hand(const Task& task, int rounds, const std::function<int(int)>& steps) {
  double w = kFirst, v = 0;
  Hand hands[2];
  std::vector<double> all;
  for (int round = 0; round < rounds; ++round) {
    double mean = 0, mean_steps = 0;
    for (int k : {0, 1}) {
      hands[k].w = w;
      for (int s = 0; s < steps(k); ++s) hands[k].step(k);
      mean_steps += steps(k) / 2.0;
    }
    for (int k : {0, 1}) {
      const double samples = steps(k) / (2 * mean_steps);
      const double share = task.weighing == table::Weighing::kSamples ? samples
                           : task.weighing == table::Weighing::kSteps ? mean_steps / steps(k) / 2
                                                                      : 0.5;
      mean += share * (hands[k].w - w);
    }
    v = task.global_momentum * v + mean;
    w += task.global_rate * (task.global_nesterov ? task.global_momentum * v + mean : v);
    all.push_back(w);
  }
  return all;
}

TEST(GlobalMomentum, IsWhatItIsByHand) {
  for (const char* more :
       {"", "global_rate=0.7", "global_momentum=0.6", "global_rate=0.7 global_momentum=0.6",
        "global_rate=0.7 global_momentum=0.6 global_nesterov=true",
        "aggregation=uniform global_momentum=0.9"}) {
    const std::string scheme = str("local_steps local_steps=3 ", more);
    SCOPED_TRACE(scheme);
    const JobResult job =
        train(one_number(),
              {.workers = 2, .servers = 2, .scheme = scheme, .stops = {1, 2, 7}, .change = aim});
    ASSERT_TRUE(job.ok()) << job.why();
    const auto expected =
        by_hand(table::make_scheme(scheme).value()->task, 7, [](int) { return 3; });
    for (const std::size_t stop : {0, 1, 2}) {
      EXPECT_NEAR(job.at(stop)[0], expected[stop == 2 ? 6 : stop], 1e-5) << "stop " << stop;
      EXPECT_EQ(job.weights[0][stop], job.weights[1][stop]);
    }
  }
}

// Worker 1 makes three steps for one of worker 0.
class Unequal final : public table::Pacer {
 public:
  void save(table::StateWriter&) override {}
  void load(table::StateReader&) override {}
  void join(int, table::Instant) override {}
  void leave(int, table::Instant) override {}
  void ready(int worker, Clock, const TaskReport&, table::Instant) override {
    waiting_.push_back(worker);
  }
  Verdict judge(int, Clock, const TaskReport&, table::Instant) override { return Verdict::kPush; }
  std::vector<Start> take_starts(table::Instant) override {
    std::vector<Start> starts;
    for (const int worker : std::exchange(waiting_, {}))
      starts.push_back({.worker = worker, .steps = worker == 1 ? 3u : 1u, .mean_steps = 2});
    return starts;
  }

 private:
  std::vector<int> waiting_;
};

TEST(GlobalMomentum, OfWorkersWithDifferentNumbersOfSteps) {
  for (const table::Weighing weighing :
       {table::Weighing::kUniform, table::Weighing::kSamples, table::Weighing::kSteps})
    for (const bool nesterov : {false, true}) {
      const Task task{.contribution = table::ContributionKind::kDelta,
                      .steps = 0,
                      .paced = true,
                      .weighing = weighing,
                      .global_rate = 0.8F,
                      .global_momentum = 0.6F,
                      .global_nesterov = nesterov};
      const auto maker = [&](const table::SchemeSpec&) -> Result<std::unique_ptr<table::Scheme>> {
        return std::unique_ptr<table::Scheme>(
            std::make_unique<table::InStep>(table::SchemeSpec{.name = "assigned"}, task,
                                            [] { return std::make_unique<Unequal>(); }));
      };
      const JobResult job =
          train(one_number(), {.workers = 2, .maker = maker, .stops = {5}, .change = aim});
      ASSERT_TRUE(job.ok()) << job.why();
      EXPECT_NEAR(job.at(0)[0], by_hand(task, 5, [](int k) { return k == 1 ? 3 : 1; })[4], 1e-5)
          << "weighing " << static_cast<int>(weighing) << ", " << nesterov;
    }
}

TEST(GlobalMomentum, IsInASnapshot) {
  const std::string prefix = fresh_directory("global_momentum") + "/snapshot";
  for (const char* more : {"", " global_nesterov=true"}) {
    const SolverParameter param = one_number("snapshot: 4 snapshot_prefix: '" + prefix + "'");
    JobShape shape{
        .workers = 2,
        .servers = 2,
        .scheme =
            str("local_steps local_steps=2 momentum_policy=average global_momentum=0.8", more),
        .stops = {4, 8},
        .change = aim};
    const JobResult whole = train(param, shape);
    shape.before = [&](int, Solver& solver) { solver.restore(prefix + "_iter_4.solverstate"); };
    shape.servers = 1;
    const JobResult rest = train(param, shape);
    ASSERT_TRUE(whole.ok() && rest.ok()) << whole.why() << rest.why();
    EXPECT_EQ(whole.at(1), rest.at(1));
  }
}

// Averages the values that forward passes change, whatever the table's rate is.
TEST(GlobalMomentum, IsNotOfRunningMeans) {
  const std::string path = fresh_directory("global_sums") + "/digits";
  make_digits(path);
  SolverParameter param = small_solver(path, path + "_snapshot", "base_lr: 0");
  share_data(*param.mutable_net_param());
  const JobResult plain =
      train(param, {.workers = 2, .scheme = "local_steps local_steps=1", .stops = {3}});
  const JobResult slow =
      train(param, {.workers = 2,
                    .scheme = "local_steps local_steps=1 global_rate=0.5 global_momentum=0.9",
                    .stops = {3}});
  ASSERT_TRUE(plain.ok() && slow.ok()) << plain.why() << slow.why();
  EXPECT_LT(distance(slow.at(0), plain.at(0)), 1e-6);
}

TEST(GlobalMomentum, RefusesWhatMakesNoSense) {
  EXPECT_HAS(table::make_scheme("local_steps global_nesterov=true").error().message,
             "global_nesterov needs a global_momentum");
  EXPECT_HAS(table::make_scheme("local_steps global_momentum=1").error().message,
             "global_momentum");
  EXPECT_HAS(table::make_scheme("async payload=delta global_momentum=0.5").error().message,
             "of local_steps, esync and streaming");
  EXPECT_EQ(table::make_scheme("esync global_nesterov=true global_momentum=0.9").value()->name(),
            "esync global_momentum=0.9 global_nesterov=true");
}

// ---- what leaves when ----

// Returns a net of three layers that learn, on its own part of the digits.
SolverParameter layered(const std::string& more) {
  const std::string path = fresh_directory("early_layers") + "/digits";
  make_digits(path);
  SolverParameter param = parse_solver(
      "base_lr: 0.05 momentum: 0.9 weight_decay: 0.01 lr_policy: 'fixed' random_seed: 3 max_iter: "
      "50 display: 0 snapshot_after_train: false " +
          more,
      "job");
  const auto ip = [](const char* name, const char* bottom, int outputs) {
    return str("layer { name: '", name, "' type: 'InnerProduct' bottom: '", bottom, "' top: '",
               name, "' inner_product_param { num_output: ", outputs,
               " weight_filler { type: 'xavier' } } }");
  };
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { scale: 0.01 } "
      "data_param { source: '" +
          path + "' backend: DATUMFILE batch_size: 4 shared_file_system: true } }" +
          ip("one", "data", 9) + ip("two", "one", 7) + ip("three", "two", 4) +
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'three' bottom: 'label' top: "
          "'loss' }",
      "job.prototxt");
  return param;
}

// Under on_nan: SKIP everything leaves at the end, and nothing else differs.
TEST(EarlyRows, AreTheSameNumbers) {
  for (const std::string scheme :
       {"local_steps local_steps=3",
        "local_steps local_steps=2 momentum_policy=average global_momentum=0.5",
        "esync min_steps=2 max_steps=2"})
    for (const int replicas : {1, 2}) {
      const JobShape shape{
          .workers = 3, .servers = 2, .replicas = replicas, .scheme = scheme, .stops = {1, 6}};
      const JobResult early = train(layered("on_nan: STOP"), shape),
                      late = train(layered("on_nan: SKIP"), shape);
      ASSERT_TRUE(early.ok() && late.ok()) << early.why() << late.why();
      EXPECT_EQ(early.weights, late.weights) << scheme;
    }
}

// The calls that a worker makes of its table, in letters: p pushes with the first layer not updated
// yet, P pushes behind its update, w waits for rows, b asks whether it may begin.
class Listening final : public ForwardingTable {
 public:
  using ForwardingTable::ForwardingTable;
  void push(std::span<const table::Push> together) override {
    const auto now = first->data.host();
    said += std::ranges::equal(now, before) ? 'p' : 'P';
    ForwardingTable::push(together);
  }
  Status wait(std::span<const table::RowId> rows) override {
    if (rows.empty()) return {};
    if (!said.ends_with('w')) said += 'w';
    return ForwardingTable::wait(rows);
  }
  Result<std::string> ask(table::Topic topic, Clock clock, std::string body) override {
    if (topic == table::Topic::kBegin) said += 'b';
    return ForwardingTable::ask(topic, clock, std::move(body));
  }
  // Notes the first layer's weights, with which the last step of a task begins.
  void look() { before.assign(first->data.host().begin(), first->data.host().end()); }

  const Blob* first = nullptr;
  std::vector<float> before;
  std::string said;
};

// Returns the letters of the second task of worker 0 of two.
std::string second_task(const std::string& scheme, const std::string& more = "") {
  Job cluster(2, 1);
  std::string said;
  const SolverParameter param = layered(more);
  const auto outcomes = cluster.run([&](int index, table::Table& inner) -> Status {
    Listening table(inner);
    const auto team = parallel::make_table_team(table);
    SolverOptions options = with_name("job");
    options.team = team.get();
    options.share = {.client = index, .clients = 2, .replica = 0, .replicas = 1};
    options.make_updater = [&](Net& net) {
      return parallel::make_table_updater(param, net, table,
                                          {.name = "job", .scheme = table::scheme_of(scheme)});
    };
    Solver solver(param, options);
    table.first = solver.net().params()[0].blob;
    solver.net().before_backward([&](int layer) {
      if (layer + 1 == static_cast<int>(solver.net().layers().size())) table.look();
      return Status();
    });
    if (const Result<Ending> ending = solver.step(1); !ending.ok()) return ending.error();
    table.said.clear();
    if (const Result<Ending> ending = solver.step(1); !ending.ok()) return ending.error();
    if (index == 0) said = table.said;
    return table.finish(solver.iteration());
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  return said;
}

TEST(EarlyRows, LeaveLayerByLayerAndTheNextTaskIsAskedForMeanwhile) {
  EXPECT_EQ(second_task("local_steps local_steps=2"), "wppP");
  EXPECT_EQ(second_task("local_steps local_steps=2", "on_nan: SKIP"), "wP");
  EXPECT_EQ(second_task("local_steps local_steps=2", "clip_gradients: 5"), "wP");
  EXPECT_EQ(second_task("esync max_steps=1"), "bwppP") << "it asks before it waits";
  EXPECT_EQ(second_task("esync max_steps=1 mode=pull"), "wbwP");
  EXPECT_EQ(second_task("drift_barrier 1 payload=delta").substr(0, 2), "wb")
      << "its word depends on what is merged";
}

}  // namespace
}  // namespace shoal::test::global_momentum_test
