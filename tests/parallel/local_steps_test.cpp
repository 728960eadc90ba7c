// Tests tasks of several steps: how a job of one number learns by them, step by step by hand, and
// options that exclude each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "shoal/net/net.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/io.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/local_steps_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::local_steps_test {
namespace {

using local_steps::aim;
using local_steps::deltas;
using local_steps::Hand;
using local_steps::kDecay;
using local_steps::kFirst;
using local_steps::kRate;
using local_steps::one_number;
using local_steps::target_of;
using local_steps::Told;
using local_steps::tried;
using table::Clock;
using table::ContributionKind;
using table::MomentumPolicy;
using table::Start;
using table::Task;
using table::TaskReport;
using table::Verdict;

constexpr MomentumPolicy kPolicies[] = {MomentumPolicy::kKeep, MomentumPolicy::kReset,
                                        MomentumPolicy::kAverage};

TEST(LocalSteps, AreWhatTheyAreByHand) {
  for (const MomentumPolicy policy : kPolicies) {
    const JobResult job = train(one_number(), {.workers = 2,
                                               .servers = 2,
                                               .maker = tried(deltas(5, policy)),
                                               .stops = {1, 2, 6},
                                               .change = aim});
    ASSERT_TRUE(job.ok()) << job.why();
    double center = kFirst;
    Hand hands[2];
    std::vector<double> expected;
    for (int task = 0; task < 6; ++task) {
      for (int k : {0, 1}) {
        hands[k].w = center;
        if (policy == MomentumPolicy::kReset) hands[k].h = 0;
        for (int s = 0; s < 5; ++s) hands[k].step(target_of(k));
      }
      center += (hands[0].w - center + hands[1].w - center) / 2;
      if (policy == MomentumPolicy::kAverage)
        hands[0].h = hands[1].h = (hands[0].h + hands[1].h) / 2;
      expected.push_back(center);
    }
    for (const std::size_t stop : {0, 1, 2}) {
      EXPECT_NEAR(job.at(stop)[0], expected[stop == 2 ? 5 : stop], 1e-5)
          << "policy " << static_cast<int>(policy) << ", stop " << stop;
      EXPECT_EQ(job.weights[0][stop], job.weights[1][stop]);
    }
  }
}

TEST(LocalSteps, OneWithMomentumIsGradientAveraging) {
  const std::string path = fresh_directory("local_one") + "/digits";
  make_digits(path);
  SolverParameter param = parse_solver(
      "base_lr: 0.02 momentum: 0.9 weight_decay: 0.01 lr_policy: 'step' stepsize: 10 gamma: 0.5 "
      "random_seed: 3 max_iter: 30 display: 0 "
      "snapshot_after_train: false",
      "job");
  *param.mutable_net_param() = parse_net(
      "layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { scale: 0.01 } "
      "data_param { source: '" +
          path +
          "' backend: DATUMFILE batch_size: 4 shared_file_system: true } }"
          "layer { name: 'one' type: 'InnerProduct' bottom: 'data' top: 'one' inner_product_param "
          "{ num_output: 10 weight_filler { type: 'xavier' } } }"
          "layer { name: 'tanh' type: 'TanH' bottom: 'one' top: 'tanh' }"
          "layer { name: 'ip' type: 'InnerProduct' bottom: 'tanh' top: 'ip' param { lr_mult: 1 } "
          "param { lr_mult: 2 } inner_product_param { num_output: 4 weight_filler { type: 'xavier' "
          "} } }"
          "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }",
      "job.prototxt");
  const JobResult mean = train(param, {.workers = 3, .servers = 2, .stops = {30}});
  const JobResult local =
      train(param, {.workers = 3, .servers = 2, .maker = tried(deltas(1)), .stops = {30}});
  ASSERT_TRUE(mean.ok() && local.ok()) << mean.why() << local.why();
  EXPECT_LT(distance(local.at(0), mean.at(0)), 1e-5);
  const JobResult replicas = train(
      param, {.workers = 3, .servers = 2, .replicas = 2, .maker = tried(deltas(3)), .stops = {10}});
  ASSERT_TRUE(replicas.ok()) << replicas.why();
  EXPECT_LT(replicas.losses[0].back(), 0.7F * replicas.losses[0].front());
}

TEST(LocalSteps, EveryTypeOfSolverLearnsAndClipsItsOwn) {
  for (const char* type : {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"}) {
    SolverParameter param =
        one_number(std::string("clip_gradients: 1 on_nan: SKIP type: '") + type + "'");
    const std::string name = type;
    if (name == "AdaGrad" || name == "RMSProp") param.clear_momentum(), param.set_base_lr(0.3F);
    if (name == "AdaDelta") param.set_base_lr(20), param.set_delta(1e-4F);
    const JobResult job =
        train(param, {.workers = 2, .maker = tried(deltas(4)), .stops = {20}, .change = aim});
    ASSERT_TRUE(job.ok()) << type << ": " << job.why();
    EXPECT_LT(std::abs(job.at(0)[0] - 2), 0.75) << type;  // between the targets
  }
}

// Running means and the like are, after one iteration, the mean of those that each worker would
// have alone.
TEST(LocalSteps, RunningMeansAreAveraged) {
  const std::string path = fresh_directory("local_sums") + "/digits";
  make_digits(path);
  SolverParameter param = small_solver(path, path + "_snapshot", "base_lr: 0");
  share_data(*param.mutable_net_param());
  const JobResult own = train(param, {.workers = 2, .stops = {1}}),
                  job = train(param, {.workers = 2, .maker = tried(deltas(1)), .stops = {1, 3}});
  ASSERT_TRUE(own.ok() && job.ok()) << own.why() << job.why();
  Weights mean = own.weights[0][0];
  for (std::size_t i = 0; i < mean.size(); ++i)
    mean[i] = (own.weights[0][0][i] + own.weights[1][0][i]) / 2;
  EXPECT_NE(own.weights[0], own.weights[1]);
  EXPECT_LT(distance(job.at(0), mean), 1e-6);
  EXPECT_EQ(job.weights[0], job.weights[1]);
}

TEST(LocalSteps, ResumeFromTheChiefsHistory) {
  const std::string prefix = fresh_directory("local_resume") + "/snapshot";
  const SolverParameter param = one_number("snapshot: 4 snapshot_prefix: '" + prefix + "'");
  const JobShape shape{.workers = 2,
                       .maker = tried(deltas(3, MomentumPolicy::kAverage)),
                       .stops = {4, 8},
                       .change = aim};
  JobShape rest = shape;
  rest.before = [&](int, Solver& solver) { solver.restore(prefix + "_iter_4.solverstate"); };
  const JobResult whole = train(param, shape), later = train(param, rest);
  ASSERT_TRUE(whole.ok() && later.ok()) << whole.why() << later.why();
  EXPECT_EQ(whole.weights, later.weights);
  JobShape keep = rest;
  keep.maker = tried(deltas(3));
  const JobResult kept = train(param, keep);  // of both the chief's momentum
  ASSERT_TRUE(kept.ok()) << kept.why();
  Hand hands[2];
  double center = whole.at(0)[0];
  const double chiefs = read_solver_state(prefix + "_iter_4.solverstate").history(0).data(0);
  for (int k : {0, 1}) {
    hands[k] = {center, chiefs};
    for (int s = 0; s < 3; ++s) hands[k].step(target_of(k));
  }
  JobShape one = keep;
  one.stops = {5};
  EXPECT_NEAR(train(param, one).at(0)[0], (hands[0].w + hands[1].w) / 2, 1e-5);
}

// Adam's correction goes on where that of the snapshot ended, whichever kind of run wrote it.
TEST(LocalSteps, AdamCountsTheUpdatesOfItsHistories) {
  const std::string prefix = fresh_directory("local_adam") + "/snapshot";
  const SolverParameter param =
      one_number("type: 'Adam' snapshot: 5 snapshot_prefix: '" + prefix + "'");
  const auto resume = [&](int, Solver& solver) { solver.restore(prefix + "_iter_5.solverstate"); };
  for (const MomentumPolicy policy : {MomentumPolicy::kKeep, MomentumPolicy::kReset}) {
    JobShape rest{.workers = 2, .maker = tried(deltas(3, policy)), .stops = {6}, .before = resume};
    const JobResult alone = train(param, {.stops = {5, 8}}), job = train(param, rest);
    ASSERT_TRUE(alone.ok() && job.ok()) << alone.why() << job.why();
    EXPECT_NEAR(job.at(0)[0], alone.at(1)[0], 1e-6);
    const JobResult whole = train(param, {.workers = 2, .maker = rest.maker, .stops = {5, 6}}),
                    later = train(param, rest);
    ASSERT_TRUE(whole.ok() && later.ok()) << whole.why() << later.why();
    EXPECT_EQ(whole.at(1), later.at(0));
  }
}

// ---- elastic averaging ----

TEST(LocalSteps, ElasticAveragingIsWhatItIsByHand) {
  constexpr double kAlpha = 0.3;
  for (const bool before : {false, true})
    for (const MomentumPolicy policy : {MomentumPolicy::kKeep, MomentumPolicy::kReset}) {
      const Task task{.contribution = ContributionKind::kWeights,
                      .steps = 3,
                      .pull_first = before,
                      .momentum = policy};
      const JobResult job = train(one_number(), {.workers = 1,
                                                 .maker = tried(task, false, kAlpha),
                                                 .stops = {1, 2, 3, 7},
                                                 .change = aim});
      ASSERT_TRUE(job.ok()) << job.why();
      Hand hand;
      double center = kFirst;
      std::size_t stop = 0;
      const auto pull = [&](double w) {
        const double e = kAlpha * (w - center);
        center += e;
        if (policy == MomentumPolicy::kReset) hand.h = 0;
        return w - e;
      };
      for (const int task_number : {1, 2, 3, 4, 5, 6, 7}) {
        const double start = hand.w, reply = before ? pull(hand.w) : 0;
        for (int s = 0; s < 3; ++s) {
          hand.step(target_of(0));
          if (before && s == 0) hand.w = reply + (hand.w - start);
        }
        if (!before) hand.w = pull(hand.w);
        const int stops[] = {1, 2, 3, 7};
        if (task_number != stops[stop]) continue;
        EXPECT_NEAR(job.at(stop++)[0], hand.w, 1e-5)
            << "before " << before << ", policy " << static_cast<int>(policy) << ", task "
            << task_number;
      }
    }
}

// Uses the reference's vectors: one step of 0.1 of F = x^2 / 2 from x = 1 with the center at 0 and
// alpha = 0.3.
TEST(LocalSteps, TestsAndSavesTheCenterAndGoesOnFromItsOwn) {
  const std::string prefix = fresh_directory("local_center") + "/snapshot";
  SolverParameter param = one_number("snapshot_prefix: '" + prefix + "'");
  param.set_momentum(0), param.set_weight_decay(0);
  for (const bool before : {false, true}) {
    const Task task{.contribution = ContributionKind::kWeights, .steps = 2, .pull_first = before};
    const JobShape plain{
        .workers = 1, .maker = tried(task, false, 0.3F), .stops = {2, 5}, .change = aim};
    JobShape looked = plain;
    looked.before = [&](int, Solver& solver) {
      ASSERT_TRUE(solver.step(2).ok());
      ASSERT_TRUE(solver.snapshot().ok());
    };
    const JobResult job = train(param, plain), same = train(param, looked);
    ASSERT_TRUE(job.ok() && same.ok()) << job.why() << same.why();
    EXPECT_EQ(job.at(1), same.at(1)) << "what the snapshot looked at did not disturb the worker";
    double w = kFirst, center = kFirst;
    for (int t = 0; t < 2; ++t) {
      const auto pull = [&] {
        const double e = 0.3 * (w - center);
        center += e;
        return e;
      };
      const double e = before ? pull() : 0;
      w -= 0.1 * (w - 1);
      w -= e;
      w -= 0.1 * (w - 1);
      if (!before) w -= pull();
    }
    const NetParameter model = read_weights(prefix + "_iter_2.caffemodel");
    const auto layer = std::ranges::find_if(
        model.layer(), [](const LayerParameter& l) { return l.name() == "ip"; });
    EXPECT_NEAR(layer->blobs(0).data(0), center, 1e-6);
    EXPECT_NEAR(job.at(0)[0], w, 1e-6);
  }
}

// ---- the pacer ----

// Drops every second task of worker 1.
class Dropping final : public Told {
  Verdict judge(int worker, Clock clock, const TaskReport&, table::Instant) override {
    return worker == 1 && clock % 2 == 1 ? Verdict::kDrop : Verdict::kPush;
  }
};

TEST(LocalSteps, ADropLeavesTheRowsAndSeedsTheWorkerAnew) {
  for (const ContributionKind kind : {ContributionKind::kDelta, ContributionKind::kGradient}) {
    const bool delta = kind == ContributionKind::kDelta;
    const Task task{.contribution = kind,
                    .steps = delta ? 2 : 1,
                    .judged = true,
                    .momentum = MomentumPolicy::kReset};
    SolverParameter param = one_number();
    param.set_momentum(0);
    const JobResult job =
        train(param, {.workers = 2,
                      .maker = tried(task, true, 1, [] { return std::make_unique<Dropping>(); }),
                      .stops = {1, 2, 3, 4},
                      .change = aim});
    ASSERT_TRUE(job.ok()) << job.why();
    double center = kFirst;
    for (int t = 0; t < 4; ++t) {
      double sum = 0;
      for (int k = 0; k < (t % 2 == 1 ? 1 : 2); ++k) {
        double w = center;
        for (int s = 0; s < task.steps; ++s) w -= kRate * (w - target_of(k) + kDecay * w);
        sum += w - center;
      }
      center += sum / (t % 2 == 1 ? 1 : 2);
      EXPECT_NEAR(job.at(static_cast<std::size_t>(t))[0], center, 1e-5)
          << "task " << t << " of kind " << static_cast<int>(kind);
      EXPECT_EQ(job.weights[0], job.weights[1]);
    }
  }
}

// Starts no worker before all request it, and lets worker 1 make two steps for one of worker 0; the
// judge lets worker 0 have another in its third task.
class Barrier final : public Told {
 public:
  std::vector<Start> take_starts(table::Instant now) override {
    return waiting.size() < 2 ? std::vector<Start>() : Told::take_starts(now);
  }
  Start of(int worker, Clock) override { return {.worker = worker, .steps = 0, .mean_steps = 1.5}; }
  Verdict judge(int worker, Clock clock, const TaskReport& report, table::Instant) override {
    const std::uint32_t wanted = worker == 1 || clock == 2 ? 2 : 1;
    return report.steps < wanted ? Verdict::kAnother : Verdict::kPush;
  }
};

TEST(LocalSteps, AreAsManyAsThePacerSaysAndBeginWhenItSays) {
  for (const table::Weighing weighing :
       {table::Weighing::kUniform, table::Weighing::kSamples, table::Weighing::kSteps}) {
    const Task task{.contribution = ContributionKind::kDelta,
                    .steps = 0,
                    .judged = true,
                    .paced = true,
                    .momentum = MomentumPolicy::kReset,
                    .weighing = weighing};
    const JobResult job = train(
        one_number(), {.workers = 2,
                       .maker = tried(task, true, 1, [] { return std::make_unique<Barrier>(); }),
                       .stops = {4},
                       .change = aim});
    ASSERT_TRUE(job.ok()) << job.why();
    double center = kFirst;
    for (int t = 0; t < 4; ++t) {
      double sum = 0, weights = 0;
      for (int k : {0, 1}) {
        const int steps = k == 1 || t == 2 ? 2 : 1;
        Hand hand{center, 0};
        for (int s = 0; s < steps; ++s) hand.step(target_of(k));
        const double weight = weighing == table::Weighing::kUniform   ? 1
                              : weighing == table::Weighing::kSamples ? steps / 1.5
                                                                      : 1.5 / steps;
        sum += weight * (hand.w - center), weights += weight;
      }
      center += sum / weights;
    }
    EXPECT_NEAR(job.at(0)[0], center, 1e-5) << "weighing " << static_cast<int>(weighing);
  }
}

// ---- no common clock ----

// ---- what cannot be had together ----

std::string why_refused(const SolverParameter& param, const table::SchemeMaker& maker) {
  Job cluster(1, 1, maker);
  std::string why;
  (void)cluster.run([&](int, table::Table& table) -> Status {
    SolverOptions options = with_name("job");
    options.make_updater = [&](Net& net) {
      return parallel::make_table_updater(param, net, table, {.name = "job", .maker = maker});
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

TEST(LocalSteps, RefuseWhatCannotBeHadTogether) {
  const Task weights{.contribution = ContributionKind::kWeights, .steps = 2};
  Task averaged = weights, stepped = weights, early = weights, judged = weights,
       endless = deltas(0);
  averaged.momentum = MomentumPolicy::kAverage;
  stepped.weighing = table::Weighing::kSteps;
  early.contribution = ContributionKind::kDelta;
  early.pull_first = true;
  judged.pull_first = judged.judged = true;
  const struct {
    const char* more;
    Task task;
    bool in_step;
    const char* why;
  } cases[] = {
      {"", averaged, false, "has momentum_policy AVERAGE, but"},
      {"", deltas(2, MomentumPolicy::kAverage), false, "has momentum_policy AVERAGE, but"},
      {"", stepped, false, "has aggregation STEPS, which is for deltas"},
      {"", early, true, "exchanges before the first step, but only workers that send weights can"},
      {"", judged, false, "cannot drop a task"},
      {"", endless, true, "gives no number of local steps"},
      {"on_nan: WARN", deltas(2), true, "on_nan is WARN"},
      {"on_nan: SNAPSHOT", deltas(2), true, "on_nan is SNAPSHOT"}};
  for (const auto& c : cases)
    EXPECT_HAS(why_refused(one_number(c.more), tried(c.task, c.in_step)), c.why);
  EXPECT_EQ("", why_refused(one_number("clip_gradients: 1 on_nan: SKIP snapshot_diff: true"),
                            tried(deltas(2), false)));
}

}  // namespace
}  // namespace shoal::test::local_steps_test
