// Tests runs that go on from a snapshot: the same as one that was not stopped, bit for bit.
#include <gtest/gtest.h>

#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "shoal/solver/solver.h"
#include "support/data_files.h"
#include "support/solver_fixture.h"
#include "support/solver_rig.h"

namespace shoal::solver_restore_test {
namespace {

using test::all_params;
using test::datum;
using test::LogLines;
using test::small_solver;
using test::SolverTest;
using test::with_name;

struct Trace {
  std::vector<float> losses, smoothed, rates;
  std::vector<double> scores;
  std::vector<float> params;
  bool operator==(const Trace&) const = default;
};

void run(Solver& solver, int iterations, Trace& trace) {
  for (int i = 0; i < iterations; ++i) {
    if (solver.iteration() % 3 == 0)
      for (int t = 0; t < static_cast<int>(solver.test_nets().size()); ++t)
        for (const TestScore& score : or_throw(solver.test(t))) trace.scores.push_back(score.mean);
    or_throw(solver.step(1));
    trace.losses.push_back(solver.last_loss());
    trace.smoothed.push_back(solver.smoothed_loss());
    trace.rates.push_back(solver.rate());
  }
  trace.params = all_params(solver.net());
}

class SolverRestores : public SolverTest,
                       public testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(SolverRestores, BitForBit) {
  const std::string more = GetParam().second;
  Trace whole, halves, first;
  {
    Solver solver(small_solver(data_, folder_ + "/whole", more), with_name("whole"));
    run(solver, 6, first);
    run(solver, 6, whole);
    EXPECT_NE(first.params, whole.params);
  }
  if (more.find("random_seed: -1") == std::string::npos) {
    Solver solver(small_solver(data_, folder_ + "/half", more), with_name("half"));
    Trace again;
    run(solver, 6, again);
    EXPECT_EQ(again, first) << "two runs of one seed";
    ASSERT_OK(solver.snapshot());
    run(solver, 1, again);  // what is done after a snapshot does not touch it
  } else {
    Solver solver(small_solver(data_, folder_ + "/half", more), with_name("half"));
    Trace ignored;
    run(solver, 6, ignored);
    ASSERT_OK(solver.snapshot());
    whole = {};
    run(solver, 6, whole);
  }
  Solver solver(small_solver(data_, folder_ + "/half", more), with_name("half"));
  solver.restore(folder_ + "/half_iter_6.solverstate");
  EXPECT_EQ(solver.iteration(), 6);
  run(solver, 6, halves);
  EXPECT_EQ(halves.losses, whole.losses);
  EXPECT_EQ(halves.smoothed, whole.smoothed);
  EXPECT_EQ(halves.rates, whole.rates);
  EXPECT_EQ(halves.scores, whole.scores);
  EXPECT_EQ(halves.params, whole.params);
}

constexpr std::pair<const char*, const char*> kRestoreCases[] = {
    {"sgd", "weight_decay: 0.01 average_loss: 4"},
    {"nesterov_multistep",
     "type: 'Nesterov' lr_policy: 'multistep' gamma: 0.5 stepvalue: 2 stepvalue: 5 stepvalue: 8"},
    {"adagrad", "type: 'AdaGrad' momentum: 0"},
    {"rmsprop_step", "type: 'RMSProp' momentum: 0 lr_policy: 'step' gamma: 0.9 stepsize: 4"},
    {"adadelta", "type: 'AdaDelta' base_lr: 1 delta: 1e-6"},
    {"plateau",
     "lr_policy: 'plateau' gamma: 0.5 plateau_winsize: 1 plateau_winsize: 2 plateau_winsize: 1 "
     "average_loss: 3"},
    {"adam_poly", "type: 'Adam' base_lr: 0.01 lr_policy: 'poly' power: 0.5"},
    {"iter_size_clip", "iter_size: 2 clip_gradients: 0.1"},
    {"two_test_nets", "test_iter: 2 test_iter: 3 test_interval: 1000 test_initialization: false"},
    {"seed_of_the_system",
     "random_seed: -1 test_iter: 2 test_interval: 1000 test_initialization: false"},
    {"two_threads_skip", "on_nan: SKIP snapshot_diff: true"},
};

INSTANTIATE_TEST_SUITE_P(All, SolverRestores, testing::ValuesIn(kRestoreCases),
                         [](const auto& info) { return std::string(info.param.first); });

// solve() tests at 0, 3, 6 ...; interrupted at 6, just before the test there, or in the midst of
// it.
TEST_F(SolverTest, ARunStoppedDuringATestMakesThatTestAgain) {
  const std::string more = "test_iter: 4 test_interval: 3 average_loss: 5";
  const auto scores_of = [](const LogLines& log) {
    std::vector<std::string> scores;
    for (const std::string& line : log.lines)
      if (line.find("Test net output") != std::string::npos) scores.push_back(line);
    return scores;
  };
  std::vector<std::string> whole;
  std::vector<float> params;
  {
    LogLines log;
    Solver solver(small_solver(data_, folder_ + "/whole", more), with_name("whole"));
    ASSERT_EQ(or_throw(solver.solve()), Ending::kDone);
    whole = scores_of(log);
    params = all_params(solver.net());
  }
  ASSERT_EQ(whole.size(), 2u * 5);
  LogLines log;
  {
    // The action is asked once a batch of a test and once an iteration: the 18th call is in the
    // third batch of the test at 6.
    int asked = 0;
    SolverOptions options = with_name("half");
    options.action = [&] {
      return ++asked == 4 + 3 + 4 + 3 + 3 ? Action::kRequeue : Action::kNone;
    };
    Solver solver(small_solver(data_, folder_ + "/half", more), options);
    ASSERT_EQ(or_throw(solver.solve()), Ending::kRequeue);
    EXPECT_EQ(solver.iteration(), 6);
    EXPECT_TRUE(log.has("Test interrupted\\."));
  }
  Solver solver(small_solver(data_, folder_ + "/half", more), with_name("half"));
  solver.restore(newest_snapshot(folder_ + "/half"));
  ASSERT_EQ(or_throw(solver.solve()), Ending::kDone);
  EXPECT_EQ(scores_of(log), whole);
  EXPECT_EQ(all_params(solver.net()), params);
}

struct OddRecord {
  const char *name, *more;
  std::size_t at;  // of 40, in order, 8 a pass
  int label;       // -1: it is no Datum
  const char* error;
  int iteration;  // that reads it
};
constexpr OddRecord kOddRecords[] = {
    {"unreadable", "", 20, -1, "is no Datum", 2},
    {"label_out_of_range", "average_loss: 3", 20, 9, "label 9 of", 2},
    {"in_the_second_pass", "iter_size: 2", 28, -1, "is no Datum", 1},
    {"after_a_test", "test_iter: 1 test_interval: 2", 20, -1, "is no Datum", 2},
};
class SolverEndedByData : public SolverTest, public testing::WithParamInterface<OddRecord> {};

// The record is corrected then, and the run goes on as if it had not been odd.
TEST_P(SolverEndedByData, ReadsTheSameRecordsAgain) {
  const OddRecord& odd = GetParam();
  const auto solver_of = [&](const std::string& prefix) {
    SolverParameter param =
        small_solver(data_, folder_ + "/" + prefix, str("max_iter: 6 snapshot: 100 ", odd.more));
    param.mutable_net_param()->mutable_layer(0)->mutable_data_param()->set_shuffle(false);
    return std::make_unique<Solver>(param, with_name(prefix));
  };
  const auto whole = solver_of("whole");
  or_throw(whole->solve());
  const test::Records good = or_throw(test::read_all(*or_throw(open_source("datumfile", data_))));
  test::Records records = good;
  records[odd.at].second =
      odd.label < 0 ? "no Datum" : datum(1, 6, 6, std::string(36, 'x'), odd.label);
  ASSERT_OK(test::write_records("datumfile", data_, records, WriteMode::kTruncate));
  const Result<Ending> ended = solver_of("half")->solve();
  EXPECT_FAILS_WITH(odd.error, ended);
  EXPECT_FAILS_WITH(str("; a snapshot has the state of iteration ", odd.iteration,
                        "; a run from it reads the same records again"),
                    ended);
  ASSERT_OK(test::write_records("datumfile", data_, good, WriteMode::kTruncate));
  const auto half = solver_of("half");
  half->restore(newest_snapshot(folder_ + "/half"));
  or_throw(half->solve());
  EXPECT_EQ(all_params(half->net()), all_params(whole->net()));
  EXPECT_EQ(half->smoothed_loss(), whole->smoothed_loss());
}

INSTANTIATE_TEST_SUITE_P(All, SolverEndedByData, testing::ValuesIn(kOddRecords),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace shoal::solver_restore_test
