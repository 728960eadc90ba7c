// Scheme streaming: jobs of two numbers, each a fragment, step by step by hand; its borders to bsp;
// snapshots; and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "shoal/net/net.h"
#include "shoal/parallel/rows/fragments.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/job.h"
#include "support/local_steps_rig.h"
#include "support/solver_rig.h"

namespace shoal::test::streaming_test {
namespace {

using local_steps::aim;
using local_steps::Hand;
using local_steps::kFirst;
using local_steps::target_of;

// Two numbers are learned, each in a row of its own.
SolverParameter two_numbers(const std::string& more = "") {
  SolverParameter param = local_steps::one_number(more);
  NetParameter& net = *param.mutable_net_param();
  net.mutable_layer(0)->mutable_dummy_data_param()->mutable_shape(1)->set_dim(1, 2);
  net.mutable_layer(1)->mutable_inner_product_param()->set_num_output(2);
  return param;
}

struct Case {
  int steps = 1, fragments = 1, overlap = 0;
  double mix = 0, rate = 1, momentum = 0;
  bool nesterov = false;
  std::string words() const {
    return str("streaming local_steps=", steps, " fragments=", fragments, " overlap=", overlap,
               " mix=", mix, " global_rate=", rate, " global_momentum=", momentum,
               nesterov ? " global_nesterov=true" : "");
  }
};

// The job of two workers, by the equations of docs/reference/streaming.md and nothing else.
class Oracle {
 public:
  explicit Oracle(const Case& job) : job_(job) {
    for (auto& worker : own_)
      for (auto& number : worker) number.team = kFirst;
  }

  void round() {
    for (int step = 1; step <= job_.steps; ++step) {
      ++now_;
      for (std::size_t k : {0U, 1U})
        for (Number& number : own_[k]) number.apply_before(now_, job_);
      for (std::size_t k : {0U, 1U})
        for (Number& number : own_[k]) number.hand.step(target_of(static_cast<int>(k)));
      for (std::size_t n : {0U, 1U}) {
        const int fragment = job_.fragments == 1 ? 0 : static_cast<int>(n);
        const double end = std::ceil((fragment + 1.0) * job_.steps / job_.fragments);
        if (step == static_cast<int>(end)) exchange(n);
      }
    }
  }
  // The weights that a worker has for its next step.
  double next(std::size_t worker, std::size_t n) const {
    Number copy = own_[worker][n];
    copy.apply_before(now_ + 1, job_);
    return copy.hand.w;
  }
  double team(std::size_t n) const { return table_[n]; }

 private:
  struct Number {
    Hand hand{};
    double team = 0, answer = 0;
    int due = 0;  // the step before which the answer is applied; 0: there is none
    void apply_before(int step, const Case& job) {
      if (due == 0 || step < due) return;
      due = 0;
      hand.w = job.mix * hand.w + (1 - job.mix) * answer;
      team = answer;
    }
  };

  void exchange(std::size_t n) {
    double mean = 0;
    for (const auto& worker : own_) mean += (worker[n].hand.w - worker[n].team) / 2;
    v_[n] = job_.momentum * v_[n] + mean;
    table_[n] += job_.rate * (job_.nesterov ? job_.momentum * v_[n] + mean : v_[n]);
    for (auto& worker : own_) {
      worker[n].answer = table_[n];
      worker[n].due = now_ + job_.overlap + 1;
    }
  }

  const Case job_;
  int now_ = 0;
  std::array<std::array<Number, 2>, 2> own_{};
  std::array<double, 2> table_{kFirst, kFirst}, v_{};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {.steps = 4, .fragments = 2, .overlap = 1, .mix = 0.25},
      {.steps = 5, .fragments = 2, .overlap = 2, .mix = 0.5, .rate = 0.7},
      {.steps = 6, .fragments = 2, .rate = 0.7, .momentum = 0.5},
      {.steps = 4,
       .fragments = 2,
       .overlap = 1,
       .mix = 0.5,
       .rate = 0.7,
       .momentum = 0.5,
       .nesterov = true},
      {.steps = 3, .fragments = 1, .overlap = 2},
  };
  return all;
}

// Both servers and each worker; snapshots on the way show the team's weights and change nothing.
TEST(Streaming, IsWhatItIsByHand) {
  const std::string prefix = fresh_directory("streaming_by_hand") + "/snapshot";
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.words());
    for (const bool saves : {false, true}) {
      const SolverParameter param =
          two_numbers(saves ? "snapshot: 2 snapshot_prefix: '" + prefix + "'" : "");
      const JobResult job = train(
          param,
          {.workers = 2, .servers = 2, .scheme = one.words(), .stops = {1, 7}, .change = aim});
      ASSERT_TRUE(job.ok()) << job.why();
      Oracle oracle(one);
      std::size_t stop = 0;
      for (int round = 1; round <= 7; ++round) {
        oracle.round();
        if (round == 2 && saves) {
          const NetParameter saved = read_weights(prefix + "_iter_2.caffemodel");
          for (const std::size_t n : {0U, 1U})
            EXPECT_NEAR(oracle.team(n), saved.layer(1).blobs(0).data(static_cast<int>(n)), 1e-5);
        }
        if (round > 1 && round < 7) continue;
        for (const std::size_t worker : {0U, 1U})
          for (const std::size_t n : {0U, 1U})
            EXPECT_NEAR(oracle.next(worker, n), job.weights[worker][stop][n], 1e-5)
                << "worker " << worker << ", number " << n << ", round " << round;
        ++stop;
      }
    }
  }
}

TEST(Streaming, OneStepOfOneFragmentIsBsp) {
  const std::string path = fresh_directory("streaming_bsp") + "/digits";
  make_digits(path);
  SolverParameter param = parse_solver(
      "base_lr: 0.02 weight_decay: 0.01 lr_policy: 'step' stepsize: 10 gamma: 0.5 random_seed: 3 "
      "max_iter: 30 display: 0 snapshot_after_train: false",
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
  const JobResult bsp = train(param, {.workers = 3, .servers = 2, .stops = {10, 30}});
  for (const bool over_tcp : {false, true}) {
    const JobResult streaming = train(param, {.workers = 3,
                                              .servers = 2,
                                              .over_tcp = over_tcp,
                                              .scheme = "streaming local_steps=1",
                                              .stops = {10, 30}});
    ASSERT_TRUE(bsp.ok() && streaming.ok()) << bsp.why() << streaming.why();
    EXPECT_LT(distance(streaming.at(0), bsp.at(0)), 1e-6);
    EXPECT_LT(distance(streaming.at(1), bsp.at(1)), 1e-6);
  }
}

// The rate is low, since late deltas are added to weights that have moved on.
TEST(Streaming, AQuorumLearnsOverTcp) {
  const Case one{.steps = 4, .fragments = 2, .overlap = 1, .rate = 0.25};
  const JobResult job = train(two_numbers(), {.workers = 3,
                                              .servers = 2,
                                              .over_tcp = true,
                                              .scheme = one.words() + " quorum=2 grace=0.001",
                                              .stops = {30},
                                              .change = aim});
  ASSERT_TRUE(job.ok()) << job.why();
  for (const float weight : job.weights[1][0]) EXPECT_NEAR(3, weight, 1) << "of 1, 3 and 5";
  for (const auto& weights : job.weights) EXPECT_NEAR(3, weights[0][0], 2.5);
}

TEST(Streaming, ResumesWithTheMomentumOfTheTable) {
  const std::string prefix = fresh_directory("streaming_resume") + "/snapshot";
  SolverParameter param = two_numbers("snapshot: 4 snapshot_prefix: '" + prefix + "'");
  param.clear_momentum();  // that of other workers than the chief is not in a snapshot
  for (const char* nesterov : {"", " global_nesterov=true"}) {
    const JobShape shape{.workers = 2,
                         .servers = 2,
                         .scheme = str("streaming local_steps=3 global_rate=0.7 "
                                       "global_momentum=0.6",
                                       nesterov),
                         .stops = {4, 9},
                         .change = aim};
    JobShape rest = shape;
    rest.before = [&](int, Solver& solver) { solver.restore(prefix + "_iter_4.solverstate"); };
    const JobResult whole = train(param, shape), later = train(param, rest);
    ASSERT_TRUE(whole.ok() && later.ok()) << whole.why() << later.why();
    EXPECT_LT(distance(later.at(1), whole.at(1)), 1e-6);
    EXPECT_GT(distance(whole.at(0), whole.at(1)), 1e-3);
  }
}

TEST(Streaming, WhatCannotBeIsRefused) {
  const struct {
    const char *scheme, *says;
  } cases[] = {
      {"streaming quorum=3", "quorum is 3, but there are 2 workers"},
      {"streaming fragments=3",
       "fragments is 3, but the net's 2 numbers that learn are in 2 rows, which cannot fill as "
       "many fragments; take fewer"},
  };
  for (const auto& one : cases) {
    const JobResult job = train(two_numbers(), {.workers = 2, .scheme = one.scheme});
    EXPECT_FALSE(job.ok()) << one.scheme;
    EXPECT_NE(std::string::npos, job.why().find(one.says)) << job.why();
  }
}

// Fragments are of one size though a layer has nearly all numbers, and the bytes of a round leave
// in equal parts at equal distances.
TEST(Fragments, AreOfAboutOneSize) {
  Context context(Context::Options{.threads = 1});
  Net net(parse_net("layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { "
                    "dim: 1 dim: 50 } } }"
                    "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' "
                    "inner_product_param { num_output: 7 } }"
                    "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' "
                    "inner_product_param { num_output: 900 } }"
                    "layer { name: 'c' type: 'InnerProduct' bottom: 'b' top: 'c' "
                    "inner_product_param { num_output: 2 } }",
                    "net"),
          context);
  for (const int count : {1, 2, 3, 5, 8}) {
    const parallel::RowMap map(
        net, 2, {.pieces = parallel::kPiecesOfFragment * static_cast<std::size_t>(count)});
    const parallel::Fragments fragments(map, count, "job");
    double total = 0, most = 0;
    std::size_t rows = 0;
    for (int f = 0; f < count; ++f) {
      double size = 0;
      for (const table::RowId row : fragments.rows(f)) {
        size += map.rows()[row].length;
        EXPECT_EQ(f, fragments.of(row));
      }
      rows += fragments.rows(f).size();
      total += size;
      most = std::max(most, size);
    }
    EXPECT_EQ(map.learning().size(), rows);
    EXPECT_LE(most / (total / count), 1.13) << count;
    table::Task task;
    task.fragments = count;
    task.overlap = 1;
    parallel::FragmentClock clock(task);
    std::vector<int> left;
    for (int step = 1; step <= 16; ++step) {
      clock.step_done();
      for (int f = 0; f < count; ++f) {
        if (!clock.leaves(f, step, 16)) continue;
        left.push_back(step);
        EXPECT_FALSE(clock.is_away(f));
        clock.send(f);
        EXPECT_TRUE(clock.is_away(f) && !clock.is_due(f));
      }
    }
    ASSERT_EQ(static_cast<std::size_t>(count), left.size());
    for (int f = 0; f < count; ++f)
      EXPECT_EQ(static_cast<int>(std::ceil((f + 1) * 16.0 / count)),
                left[static_cast<std::size_t>(f)]);
  }
  const parallel::RowMap map(net, 1);
  EXPECT_THROW(parallel::Fragments(map, 100, "job"), ConfigError);
}

}  // namespace
}  // namespace shoal::test::streaming_test
