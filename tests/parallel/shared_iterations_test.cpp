// Tests runs whose workers keep to no common clock: they share the iterations of the job, or go on
// each from its own after a snapshot.
#include <gtest/gtest.h>

#include <algorithm>

#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/run.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "shoal/table/scheme.h"
#include "support/data_files.h"
#include "support/job.h"
#include "support/overheard.h"
#include "support/schemes.h"
#include "support/solver_rig.h"

namespace shoal::test::shared_iterations_test {
namespace {

struct Outcome {
  // By worker: the first iteration that it made, -1 if none; how many it made.
  std::vector<std::int64_t> began, marks;
  std::uint64_t contributions = 0;
  std::size_t rows = 0;
  std::string why;
};

// Notes the iterations that a worker makes.
class Counter final : public Meter {
 public:
  void start(std::int64_t, const Net&) override {}
  void mark(Mark mark, std::int64_t iteration, double, double) override {
    if (mark == Mark::kBegin && count++ == 0) first = iteration;
  }
  std::int64_t first = -1, count = 0;
};

class SharedIterations : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_directory("shared_iterations");
    make_digits(folder_ + "/data");
  }
  SolverParameter param(const std::string& more) const {
    SolverParameter made = small_solver(folder_ + "/data", folder_ + "/s", "max_iter: 8 " + more);
    for (LayerParameter& layer : *made.mutable_net_param()->mutable_layer())
      if (layer.has_data_param()) layer.mutable_data_param()->set_shared_file_system(true);
    return made;
  }
  // `action(worker, n, said)` is asked at each worker's n-th boundary; `said` opens when a worker
  // has requested something of all.
  using Wish = std::function<Action(int, int, Gate&)>;
  static Action nothing(int, int, Gate&) { return Action::kNone; }
  Outcome run(const SolverParameter& param, int workers, const Wish& action,
              const std::string& snapshot = "") {
    Gate said;
    Job cluster(workers, 2);
    Outcome outcome;
    outcome.began.resize(static_cast<std::size_t>(workers)),
        outcome.marks.resize(outcome.began.size());
    const auto ends = cluster.run([&](int worker, table::Table& inner) -> Status {
      Overheard table(inner, said);
      Counter counter;
      parallel::RunOptions options;
      options.snapshot = snapshot;
      options.meter = &counter;
      options.action = [&, n = 0]() mutable { return action(worker, n++, said); };
      const Result<Ending> ending =
          parallel::run(parallel::read_job_spec(param, "x"), options, &table);
      outcome.began[static_cast<std::size_t>(worker)] = counter.first;
      outcome.marks[static_cast<std::size_t>(worker)] = counter.count;
      return ending.ok() ? Status() : Status(ending.error());
    });
    for (const Status& end : ends)
      if (!end.ok()) outcome.why = end.error().message;
    outcome.contributions = cluster.contributions();
    outcome.rows = cluster.learning_rows();
    return outcome;
  }
  std::string state(int iteration) const {
    return state_path(snapshot_stem(folder_ + "/s", iteration));
  }

  std::string folder_;
};

constexpr const char* kSchemes[] = {"type: 'async'",
                                    "type: 'dc_asgd'",
                                    "type: 'async' payload: DELTA local_steps: 2",
                                    "type: 'elastic' local_steps: 2",
                                    "type: 'elastic' local_steps: 2 exchange_order: BEFORE",
                                    "type: 'weed_out' max_version_lag: 1000",
                                    "type: 'drift_barrier' max_advance: 100"};

// Worker 1 makes one iteration, and no other before worker 0 has begun all that are left.
TEST_F(SharedIterations, AreDoneByWhoeverIsFast) {
  for (const char* scheme : kSchemes) {
    SCOPED_TRACE(scheme);
    Gate left;
    LogLines log;
    const Outcome job = run(param(str("test_iter: 1 test_interval: 8 snapshot_after_train: true "
                                      "scheme { share_iterations: true ",
                                      scheme, " }")),
                            2, [&](int worker, int n, Gate&) {
                              if (worker == 0 && n >= 14) left.reach(1);
                              if (worker == 1 && n == 1 && !left.wait(1)) return Action::kStop;
                              return Action::kNone;
                            });
    ASSERT_EQ("", job.why);
    EXPECT_EQ(16, job.marks[0] + job.marks[1]);
    EXPECT_GE(job.marks[0], 14);
    EXPECT_EQ(job.contributions, 16 * job.rows) << "each once";
    EXPECT_EQ(read_solver_state(state(8)).iter(), 8) << "of each worker on average";
    EXPECT_TRUE(log.has("Iteration 8, Testing net.*"));
  }
}

// The rate of poly ends at max_iter: a worker that did more iterations had no rate of its own.
TEST_F(SharedIterations, HaveTheRateOfWhatAllHaveDone) {
  Gate left;
  LogLines log;
  const Outcome job = run(param("lr_policy: 'poly' power: 1 base_lr: 0.08 display: 1 scheme { "
                                "type: 'async' share_iterations: true }"),
                          2, [&](int worker, int n, Gate&) {
                            if (worker == 0 && n >= 14) left.reach(1);
                            if (worker == 1 && n == 1 && !left.wait(1)) return Action::kStop;
                            return Action::kNone;
                          });
  ASSERT_EQ("", job.why);
  EXPECT_TRUE(log.has("Iteration 0, lr = 0.08"));
  EXPECT_TRUE(log.has("Iteration 13, lr = 0.01"))
      << "fourteen of sixteen were begun, or fifteen: seven each";
}

// Runs a phase of shared iterations, and one in step after it.
TEST_F(SharedIterations, OfAPhaseAreItsOwn) {
  for (const char* next : {"type: 'bsp' iterations: 4",
                           "type: 'async' payload: DELTA share_iterations: true iterations: 4"}) {
    const Outcome job =
        run(param(str("scheme { type: 'async' share_iterations: true iterations: 4 } scheme { ",
                      next, " }")),
            3, nothing);
    ASSERT_EQ("", job.why);
    EXPECT_EQ(24, job.marks[0] + job.marks[1] + job.marks[2]);
  }
}

// Worker 1 is three iterations behind when the chief saves at 4.
TEST_F(SharedIterations, ARunGoesOnFromEachWorkersOwn) {
  for (const char* scheme : kSchemes)
    for (const bool shared : {false, true}) {
      SCOPED_TRACE(str(scheme, shared ? ", shared" : ""));
      const SolverParameter solver =
          param(str("scheme { ", shared ? "share_iterations: true " : "", scheme, " }"));
      Gate one;
      const Outcome first = run(solver, 2, [&](int worker, int n, Gate& said) {
        if (worker == 1 && n == 1) one.reach(1);
        if (worker == 0 && n == 4) return one.wait(1) ? Action::kRequeue : Action::kStop;
        if (worker == 1 && n == 1 && !said.wait(1)) return Action::kStop;
        return Action::kNone;
      });
      ASSERT_EQ("", first.why);
      const RunState saved = read_run_state(run_path(snapshot_stem(folder_ + "/s", 4)));
      ASSERT_EQ(1, saved.member_size());
      EXPECT_EQ(1, saved.member(0).iteration());
      EXPECT_EQ((std::vector<std::int64_t>{4, 1}), first.marks);
      const Outcome rest = run(solver, 2, nothing, state(4));
      ASSERT_EQ("", rest.why);
      EXPECT_EQ((std::vector<std::int64_t>{4, 1}), rest.began);
      EXPECT_EQ(16 - 5, rest.marks[0] + rest.marks[1]);
      EXPECT_EQ(rest.contributions,
                static_cast<std::uint64_t>(rest.marks[0] + rest.marks[1]) * rest.rows);
      const Outcome together = run(param("scheme { type: 'bsp' }"), 2, nothing, state(4));
      ASSERT_EQ("", together.why);
      EXPECT_EQ((std::vector<std::int64_t>{4, 4}), together.marks)
          << "in step all go on from the chief's";
    }
}

// The chief is at the end of its part of the first phase, or past it, and worker 1 has just begun:
// the run goes on in that phase.
TEST_F(SharedIterations, ARunGoesOnInThePhaseOfTheSlowest) {
  for (const bool shared : {false, true}) {
    SCOPED_TRACE(shared ? "shared" : "each its own");
    const int chiefs = shared ? 6 : 4;
    const SolverParameter solver =
        param(str("scheme { type: 'async' iterations: 4 ", shared ? "share_iterations: true " : "",
                  "} scheme { type: 'bsp' iterations: 4 }"));
    Gate one;
    const Outcome first = run(solver, 2, [&](int worker, int n, Gate& said) {
      if (worker == 1 && n == 1) one.reach(1);
      if (worker == 0 && n == chiefs) return one.wait(1) ? Action::kRequeue : Action::kStop;
      if (worker == 1 && n == 1 && !said.wait(1)) return Action::kStop;
      return Action::kNone;
    });
    ASSERT_EQ("", first.why);
    EXPECT_EQ((std::vector<std::int64_t>{chiefs, 1}), first.marks);
    const Outcome rest = run(solver, 2, nothing, state(chiefs));
    ASSERT_EQ("", rest.why);
    EXPECT_EQ(2 * 8 - chiefs - 1, rest.marks[0] + rest.marks[1]);
    EXPECT_EQ(rest.contributions,
              static_cast<std::uint64_t>(rest.marks[0] + rest.marks[1]) * rest.rows);
  }
}

TEST_F(SharedIterations, AreOfSchemesWithoutABound) {
  EXPECT_HAS(table::make_scheme("ssp 2 share_iterations=true").error().message,
             "requires an unbounded scheme");
  for (const char* words : {"bsp share_iterations=true", "grouped groups=0,1 share_iterations=true",
                            "local_steps share_iterations=true"})
    EXPECT_HAS(table::make_scheme(words).error().message, "share_iterations");
}

}  // namespace
}  // namespace shoal::test::shared_iterations_test
