// Schemes and pacers whose answers come from a test, and a job that learns one number, for tests of
// tasks of several steps.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/table/pacer.h"
#include "shoal/table/scheme.h"

namespace shoal::test::local_steps {

using table::Apply;
using table::Clock;
using table::Contribution;
using table::ContributionKind;
using table::Merge;
using table::MomentumPolicy;
using table::RowView;
using table::Start;
using table::Task;
using table::TaskReport;
using table::Verdict;

// A scheme, in step: the mean of a clock, by the workers' weights; not in step: each contribution
// when it comes, of weights an elastic pull.
class Tried final : public table::Scheme {
 public:
  Tried(Task task, bool in_step, float scale, table::PacerMaker pacer)
      : Scheme({.name = "tried"}, {.task = task,
                                   .staleness = in_step ? 0 : table::kUnbounded,
                                   .lockstep = in_step,
                                   .pacer = std::move(pacer)}),
        scale_(scale) {}
  std::optional<Merge> next_merge(const RowView& row) const override {
    if (row.held.empty()) return std::nullopt;
    const Clock clock = std::ranges::min(row.held, {}, &Contribution::clock).clock;
    if (lockstep && row.slowest <= clock) return std::nullopt;
    Merge merge;
    float sum = 0;
    for (std::size_t i = 0; i < (lockstep ? row.held.size() : 1); ++i) {
      if (lockstep && row.held[i].clock != clock) continue;
      const bool empty = row.held[i].weight == 0;
      (empty ? merge.drop : merge.take).push_back(i);
      if (!empty)
        merge.weights.push_back(lockstep ? row.held[i].weight : 1), sum += merge.weights.back();
    }
    merge.scale = lockstep && sum > 0 ? scale_ / sum : scale_;
    merge.apply = task.contribution == ContributionKind::kGradient ? Apply::kRule
                  : task.contribution == ContributionKind::kDelta  ? Apply::kAdd
                                                                   : Apply::kElastic;
    return merge;
  }

 private:
  const float scale_;
};

inline table::SchemeMaker tried(Task task, bool in_step = true, float scale = 1,
                                table::PacerMaker pacer = nullptr) {
  return [=](const table::SchemeSpec&) -> Result<std::unique_ptr<table::Scheme>> {
    return std::unique_ptr<table::Scheme>(std::make_unique<Tried>(task, in_step, scale, pacer));
  };
}

inline Task deltas(int steps, MomentumPolicy momentum = MomentumPolicy::kKeep) {
  return {.contribution = ContributionKind::kDelta, .steps = steps, .momentum = momentum};
}

// A pacer whose answers come from the test, and which keeps its calls.
class Told : public table::Pacer {
 public:
  void save(table::StateWriter&) override {}
  void load(table::StateReader&) override {}
  void join(int, table::Instant) override {}
  void leave(int, table::Instant) override {}
  void ready(int worker, Clock clock, const TaskReport&, table::Instant) override {
    waiting.push_back({worker, clock});
  }
  Verdict judge(int, Clock, const TaskReport&, table::Instant) override { return Verdict::kPush; }
  std::vector<Start> take_starts(table::Instant) override {
    std::vector<Start> starts;
    for (const auto& [worker, clock] : std::exchange(waiting, {}))
      starts.push_back(of(worker, clock));
    return starts;
  }
  virtual Start of(int worker, Clock) { return {.worker = worker}; }
  std::vector<std::pair<int, Clock>> waiting;
};

// One number is learned: loss (w - target)^2 / 2, so that a gradient is w - target.
inline constexpr double kRate = 0.1, kMomentum = 0.9, kDecay = 0.01, kFirst = 0.5;

inline SolverParameter one_number(const std::string& more = "") {
  SolverParameter param =
      parse_solver(str("base_lr: ", kRate, " momentum: ", kMomentum, " weight_decay: ", kDecay,
                       " lr_policy: 'fixed' random_seed: 3 display: 0 ", more),
                   "job");
  if (!param.has_max_iter()) param.set_max_iter(100);
  if (!param.has_snapshot_after_train()) param.set_snapshot_after_train(false);
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

inline double target_of(int worker) { return 1 + 2 * worker; }
inline void aim(int worker, SolverParameter& param) {
  NetParameter& net =
      param.has_net_param() ? *param.mutable_net_param() : *param.mutable_train_net_param();
  net.mutable_layer(0)->mutable_dummy_data_param()->mutable_data_filler(1)->set_value(
      static_cast<float>(target_of(worker)));
}

// The solver of one worker, by hand.
struct Hand {
  double w = kFirst, h = 0;
  void step(double target) {
    h = kMomentum * h + kRate * (w - target + kDecay * w);
    w -= h;
  }
};

}  // namespace shoal::test::local_steps
