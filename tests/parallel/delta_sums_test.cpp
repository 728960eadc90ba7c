// Tests sums of the changes by local steps, among the workers: the same params as by the table.
#include <gtest/gtest.h>

#include "shoal/net/net.h"
#include "shoal/parallel/exchange/exchange_choice.h"
#include "support/exchange_job.h"
#include "support/schemes.h"

namespace shoal::test::delta_sums_test {
namespace {

using parallel::kCollectives;
using parallel::Way;

using DeltaSums = ExchangeJob;

std::string by(Way way) { return str(" exchange { way: ", name_of(way), " }"); }
constexpr const char* kSgd = kRules[0];

TEST_F(DeltaSums, MoveTheParamsAsTheTableDoes) {
  const char* kSchemes[] = {"local_steps local_steps=1",
                            "local_steps local_steps=3 global_rate=0.7",
                            "local_steps local_steps=3 aggregation=uniform momentum_policy=reset",
                            "local_steps local_steps=2 aggregation=steps",
                            "local_steps local_steps=2 global_momentum=0.5",
                            "local_steps local_steps=2 global_rate=0.7 global_momentum=0.9 "
                            "global_nesterov=true"};
  bool differs = false;
  for (const char* scheme : kSchemes)
    for (const char* more : {" iter_size: 2", " clip_gradients: 0.5"}) {
      const std::string words = str(kSgd, " weight_decay: 0.004", more);
      for (const int workers : {2, 4}) {
        const JobShape shape{
            .workers = workers, .servers = workers, .scheme = scheme, .stops = {3, 6}};
        const JobResult table = train(job(workers, words), shape);
        for (const Way way : kCollectives) {
          SCOPED_TRACE(str(scheme, more, ", ", workers, " workers, ", name_of(way)));
          const JobResult sums = train(job(workers, words + by(way)), shape);
          ASSERT_TRUE(table.ok() && sums.ok()) << table.why() << sums.why();
          EXPECT_LE(distance(sums.at(1), table.at(1)), 1e-6);
          differs = differs || sums.at(1) != table.at(1);
          for (const auto& weights : sums.weights) EXPECT_EQ(sums.weights[0], weights);
        }
      }
    }
  EXPECT_TRUE(differs) << "the params went by the table";
}

// Trains over TCP, with one server; another layer by the table; two nets in each process.
TEST_F(DeltaSums, HaveTheSameBitsOverTcpAndTakeReplicas) {
  const std::string words = str(
      kSgd,
      " exchange { way: RING layer { name: 'conv' way: TABLE } layer { name: 'ip' way: TREE } }");
  JobShape shape{.workers = 2,
                 .servers = 2,
                 .replicas = 2,
                 .scheme = "local_steps local_steps=3",
                 .stops = {10}};
  const JobResult table = train(job(4, kSgd), shape), simulated = train(job(4, words), shape);
  shape.servers = 1;
  shape.over_tcp = true;
  const JobResult real = train(job(4, words), shape);
  ASSERT_TRUE(table.ok() && simulated.ok() && real.ok())
      << table.why() << simulated.why() << real.why();
  EXPECT_LE(distance(simulated.at(0), table.at(0)), 1e-6);
  for (const auto& weights : real.weights) EXPECT_EQ(simulated.weights[0], weights);
}

// A worker whose only step of a task was left out sends zeros that count nothing.
TEST_F(DeltaSums, LeaveOutAWorkerThatLearnedNothing) {
  const std::string words = str(kSgd, " on_nan: SKIP");
  for (const char* scheme : {"local_steps local_steps=1", "local_steps local_steps=2"}) {
    const JobShape shape{
        .workers = 2, .servers = 2, .scheme = scheme, .stops = {6}, .before = poison_a_pass};
    const JobResult table = train(job(2, words), shape),
                    sums = train(job(2, words + by(Way::kTree)), shape);
    ASSERT_TRUE(table.ok() && sums.ok()) << table.why() << sums.why();
    EXPECT_LE(distance(sums.at(0), table.at(0)), 1e-6) << scheme;
    EXPECT_EQ(sums.weights[0], sums.weights[1]) << scheme;
  }
}

// In the second phase, a generation of its own, each worker keeps its momentum, and the sums
// theirs.
TEST_F(DeltaSums, GoOnInPhases) {
  for (const char* global : {"", " global_momentum: 0.9"}) {
    SolverParameter param =
        job(2, str(kSgd, " scheme { type: 'local_steps' local_steps: 3 iterations: 5", global,
                   " } scheme { type: 'local_steps' local_steps: 2", global, " }"));
    param.set_max_iter(10);
    const std::vector<float> table = simulated(param, 2, "1e8").weights;
    param.mutable_exchange()->set_way(ExchangeParameter::HALVING_DOUBLING);
    EXPECT_LE(distance(simulated(param, 2, "1e8").weights, table), 1e-6) << global;
  }
}

// Counts one transfer a task: behind the steps before the last, and hidden by its backward passes
// alone.
TEST_F(DeltaSums, AreForecastOnceATask) {
  const SolverParameter param = job(2, str(kSgd, " exchange { }"));
  Context context({});
  Net net(param.net_param(), context);
  const parallel::Rates slow{.bandwidth = 1e5, .latency = 1e-6, .multiply_adds = 0};
  const auto choices = parallel::choose_exchanges(
      net, param, "job", *or_throw(table::make_scheme("local_steps local_steps=10")), {4, 1}, slow);
  double link = 0;
  for (const auto& one : choices) {
    EXPECT_TRUE(parallel::is_collective(one.way)) << name_of(one.way) << ": " << one.why;
    link += one.cost().link;
  }
  const auto seconds = [&](int steps) {
    return parallel::forecast_of(net, choices, {4, 1}, slow, steps).seconds(steps);
  };
  EXPECT_LT(seconds(10), 10 + seconds(1)) << "ten steps, one exchange";
  EXPECT_GT(link, 0);
}

TEST_F(DeltaSums, RefuseWhatCannotBe) {
  const Refusal cases[] = {
      {"exchange { way: TREE }", "momentum_policy AVERAGE averages the histories too",
       "local_steps momentum_policy=average"},
      {"exchange { way: FACTORS }", "makes no update of all workers' gradients", "local_steps"},
      {"exchange { way: RING }", "scheme 'esync' makes no update of all", "esync"},
      {"exchange { way: RING }", "scheme 'elastic' makes no update of all", "elastic"},
  };
  for (const Refusal& one : cases) expect(one);
}

}  // namespace
}  // namespace shoal::test::delta_sums_test
