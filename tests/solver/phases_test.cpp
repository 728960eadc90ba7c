// Tests runs of several phases: nothing is lost or counted twice at a change, and the rest of the
// run is as a run from there would be.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/snapshot.h"
#include "shoal/table/scheme.h"
#include "support/data_files.h"
#include "support/expect.h"
#include "support/job.h"
#include "support/overheard.h"
#include "support/schemes.h"
#include "support/solver_rig.h"

namespace shoal::test::phases_test {
namespace {

using table::Clock;

// The values that learning rows held on the servers when a plan of a later generation came, and
// what they held then.
struct Change {
  std::vector<std::vector<float>> before, after;
  std::string scheme;
  table::Clock start = 0;
};

// A worker's table, which its chief examines when it is made anew.
class WatchedTable final : public Overheard {
 public:
  // `scheme`: of the second generation, if it is not the next phase's.
  WatchedTable(Job& cluster, table::Table& inner, std::vector<Change>& changes, Gate& said,
               const std::string& scheme)
      : Overheard(inner, said), cluster_(cluster), changes_(changes), scheme_(scheme) {}
  Result<bool> regroup(const table::SegmentBody& end) override {
    table::SegmentBody said = end;
    if (roster().generation == 0 && !scheme_.empty()) said.scheme = table::scheme_of(scheme_);
    return Overheard::regroup(said);
  }
  Status create(const table::Plan& plan, const Source& initial,
                const Destinations& destinations) override {
    const bool looks = plan.generation > 0 && worker() == 0;
    if (looks) changes_.push_back({cluster_.rows(), {}, plan.scheme.words(), plan.start});
    if (looks)
      for (table::RowId row = 0; row < plan.rows.size(); ++row) {
        if (!plan.rows[row].learns) continue;
        const auto numbers = initial(row, table::Part::kWeights);
        changes_.back().after.emplace_back(numbers.begin(), numbers.end());
      }
    return Overheard::create(plan, initial, destinations);
  }

 private:
  Job& cluster_;
  std::vector<Change>& changes_;
  const std::string scheme_;
};

struct Trained {
  std::vector<Change> changes;
  std::vector<std::vector<float>> end;  // what the rows held
  std::uint64_t merges = 0, contributions = 0;
  std::size_t rows = 0;  // that learn
  std::string why;       // the first error
};

parallel::RunOptions options_from(const std::string& snapshot) {
  parallel::RunOptions options;
  options.snapshot = snapshot;
  return options;
}

// The options of the run, beside the solver's.
struct Wish {
  std::string scheme;  // of a generation that is not a phase's
  // The chief wants that generation when it is asked for the n-th time; 0: it does not.
  int at = 0;
  // The chief wants a snapshot before the first iteration of the second phase.
  bool saves = false;
};

Trained train_in_phases(const SolverParameter& param, int workers, const std::string& snapshot = "",
                        const Wish& wish = {}) {
  Trained result;
  Gate said;
  Job cluster(workers, 2);
  const auto outcomes = cluster.run([&](int worker, table::Table& inner) -> Status {
    WatchedTable table(cluster, inner, result.changes, said, wish.scheme);
    parallel::RunOptions options = options_from(snapshot);
    int phases = 0;
    options.wrap = [&](Net&, std::unique_ptr<Updater> updater, const SolverParameter&) {
      return ++phases, std::move(updater);
    };
    options.action = [&, asked = false, times = 0]() mutable {
      if (worker == 0 && ++times == wish.at) return Action::kRegroup;
      if (!wish.saves || phases != 2 || std::exchange(asked, true)) return Action::kNone;
      if (worker == 0) return Action::kSnapshot;
      return said.wait(1) ? Action::kNone : Action::kRequeue;
    };
    const Result<Ending> ending =
        parallel::run(parallel::read_job_spec(param, "x"), options, &table);
    EXPECT_TRUE(!ending.ok() || ending.value() == Ending::kDone) << worker;
    return ending.ok() ? Status() : Status(ending.error());
  });
  for (const Status& outcome : outcomes)
    if (!outcome.ok() && result.why.empty()) result.why = outcome.error().message;
  result.end = cluster.rows();
  result.merges = cluster.merges();
  result.contributions = cluster.contributions();
  result.rows = cluster.learning_rows();
  return result;
}

// Returns the schemes that workers can train with, with the parameters that they have by
// themselves.
std::vector<std::string> trainable_schemes() {
  std::vector<std::string> words;
  for (const std::string& name : table::scheme_names()) {
    const auto scheme = table::make_scheme(name == "ssp" ? "ssp 1" : name);
    if (scheme.ok() && scheme.value()->contribution() == table::ContributionKind::kGradient &&
        !scheme.value()->make_pacer())
      words.push_back(name);
  }
  return words;
}

std::string phase(const std::string& name, const std::string& more = "") {
  return str(" scheme { type: '", name, "' iterations: 4 ", name == "ssp" ? "staleness: 1 " : "",
             more, "}");
}

class PhasesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_directory("phases");
    make_digits(folder_ + "/data");
  }
  // Returns parameters with momentum, shuffled data, crops, dropout, running means.
  SolverParameter param(const std::string& more) const {
    SolverParameter made = small_solver(folder_ + "/data", folder_ + "/s", "max_iter: 8 " + more);
    share_data(*made.mutable_net_param());
    return made;
  }
  std::string folder_;
};

TEST_F(PhasesTest, EveryChangeOfSchemeKeepsEveryBit) {
  const std::vector<std::string> schemes = trainable_schemes();
  ASSERT_GE(schemes.size(), 3u);
  for (const std::string& first : schemes)
    for (const std::string& second : schemes) {
      SCOPED_TRACE(first + " then " + second);
      const Trained run = train_in_phases(param(phase(first) + phase(second, "base_lr: 0.02 ")), 2);
      ASSERT_EQ("", run.why);
      ASSERT_EQ(1u, run.changes.size());
      EXPECT_EQ(4, run.changes[0].start);
      ASSERT_EQ(run.changes[0].before, run.changes[0].after);
      EXPECT_NE(run.changes[0].after, run.end);
      EXPECT_EQ(run.contributions, 2 * 8 * run.rows)
          << "a push of each worker, iteration and row, once";
    }
}

// Uses one worker, on whose order nothing depends, and a lockstep scheme after another one. The
// state at the start of the second phase is saved, so that it does not matter that no two runs of
// an asynchronous first one are alike.
TEST_F(PhasesTest, WhatFollowsIsWhatARunFromThereDoes) {
  for (const int workers : {1, 2})
    for (const std::string& first : trainable_schemes())
      for (const std::string& second : trainable_schemes()) {
        const bool lockstep =
            table::make_scheme(second == "ssp" ? "ssp 1" : second).value()->lockstep;
        if (workers > 1 && !lockstep) continue;
        SCOPED_TRACE(str(workers, ": ", first, " then ", second));
        const Trained whole = train_in_phases(param(phase(first) + phase(second, "base_lr: 0.02 ")),
                                              workers, "", {.scheme = "", .saves = true});
        ASSERT_EQ("", whole.why);
        const Trained rest =
            train_in_phases(param(str("base_lr: 0.02 scheme { type: '", second, "' ",
                                      second == "ssp" ? "staleness: 1 }" : "}")),
                            workers, state_path(snapshot_stem(folder_ + "/s", 4)));
        ASSERT_EQ("", rest.why);
        EXPECT_EQ(whole.end, rest.end);
        EXPECT_EQ(rest.contributions, workers * 4 * rest.rows);
        std::filesystem::remove(state_path(snapshot_stem(folder_ + "/s", 4)));
      }
}

// Changes to the same rate.
TEST_F(PhasesTest, TwoPhasesOfOneSchemeAreOneRun) {
  for (const int workers : {1, 3}) {
    const Trained one = train_in_phases(
        param("display: 2 test_interval: 4 test_iter: 2 scheme { type: 'bsp' }"), workers);
    const Trained two = train_in_phases(param("display: 2 test_interval: 4 test_iter: 2" +
                                              phase("bsp", "base_lr: 0.05 ") + phase("bsp")),
                                        workers);
    ASSERT_EQ("", one.why + two.why);
    EXPECT_EQ(one.end, two.end);
    EXPECT_EQ(one.merges, two.merges);
    EXPECT_EQ(1u, two.changes.size());
  }
}

TEST_F(PhasesTest, APhaseHasItsOwnRateAndTests) {
  LogLines log;
  const Trained run =
      train_in_phases(param("display: 1 test_iter: 1 test_interval: 100" +
                            phase("bsp", "base_lr: 0.25 ") + phase("async", "test_interval: 2 ")),
                      1);
  ASSERT_EQ("", run.why);
  EXPECT_TRUE(log.has("Iteration 3, lr = 0.25"));
  EXPECT_TRUE(log.has("Iteration 4, lr = 0.05"));
  EXPECT_TRUE(log.has("Iteration 4: scheme bsp ends, async .*begins, until iteration 8"));
  EXPECT_FALSE(log.has("Iteration 2, Testing net.*"));
  EXPECT_TRUE(log.has("Iteration 6, Testing net.*"));
  EXPECT_EQ(1, std::ranges::count_if(log.lines, [](const std::string& line) {
              return line == "Optimization Done.";
            }));
}

// Schemes make no difference to one worker, and rates do.
TEST_F(PhasesTest, AloneTheRatesOfPhasesCount) {
  const auto end_of = [&](const std::string& more, int solvers) {
    std::vector<float> weights;
    LogLines log;
    const parallel::RunOptions options = options_from("");
    EXPECT_TRUE(
        parallel::run(parallel::read_job_spec(param("snapshot_after_train: true " + more), "x"),
                      options, nullptr)
            .ok());
    EXPECT_EQ(solvers, std::ranges::count(log.lines, "Solver scaffolding done."));
    Solver solver(param(more), with_name("x"));
    solver.restore(state_path(snapshot_stem(folder_ + "/s", 8)));
    return all_params(solver.net());
  };
  const auto plain = end_of("scheme { type: 'bsp' }", 1);
  EXPECT_EQ(plain, end_of(phase("bsp") + phase("async"), 1));
  EXPECT_EQ(plain, end_of(phase("bsp", "base_lr: 0.05 ") + phase("async"), 2));
  EXPECT_NE(plain, end_of(phase("bsp", "base_lr: 0.01 ") + phase("async"), 2));
}

// Covers fields other than the rate; a phase with the solver's own values changes nothing.
TEST_F(PhasesTest, OwnFieldsOfAPhaseCount) {
  const auto end_of = [&](const std::string& own) {
    const Trained run = train_in_phases(param(phase("bsp", own) + phase("bsp")), 2);
    EXPECT_EQ(run.why, "") << own;
    return run.end;
  };
  const auto plain = end_of("");
  EXPECT_EQ(plain, end_of("momentum: 0.9 iter_size: 1 batch_size: 8 "));
  for (const char* own :
       {"momentum: 0.5 ", "weight_decay: 0.1 ", "iter_size: 2 ", "batch_size: 4 "})
    EXPECT_NE(plain, end_of(own)) << own;
}

TEST_F(PhasesTest, APhaseMayHaveNoTests) {
  LogLines log;
  SolverParameter made = param("test_iter: 1 test_interval: 2" + phase("bsp") +
                               phase("async", "test_interval: 0 ") + phase("bsp"));
  made.set_max_iter(12);
  const Trained run = train_in_phases(made, 2);
  ASSERT_EQ("", run.why);
  EXPECT_TRUE(log.has("Iteration 2, Testing net.*"));
  EXPECT_FALSE(log.has("Iteration 6, Testing net.*"));
  EXPECT_TRUE(log.has("Iteration 10, Testing net.*"));
}

// A run has its nets from the spec: a file that changes while it trains changes nothing.
TEST_F(PhasesTest, TheNetFileIsNotReadAgain) {
  const std::string file = folder_ + "/net.prototxt";
  const auto end_of = [&](bool edits) {
    SolverParameter solver = param(phase("bsp") + phase("async"));
    or_throw(write_file(file, to_text(solver.net_param()), Code::kConfig));
    solver.clear_net_param();
    solver.set_net(file);
    parallel::RunOptions options;
    int phases = 0;
    std::vector<float> end;
    options.wrap = [&](Net& net, std::unique_ptr<Updater> updater, const SolverParameter&) {
      if (edits) or_throw(write_file(file, "name: 'another'", Code::kConfig));
      if (++phases == 2) end = all_params(net);
      return updater;
    };
    const parallel::JobSpec spec = parallel::read_job_spec(solver, "x");
    Job cluster(1);
    const auto outcomes = cluster.run([&](int, table::Table& table) -> Status {
      const Result<Ending> ending = parallel::run(spec, options, &table);
      return ending.ok() ? Status() : Status(ending.error());
    });
    EXPECT_TRUE(outcomes[0].ok());
    EXPECT_EQ(2, phases);
    const auto rows = cluster.rows();
    for (const auto& row : rows) end.insert(end.end(), row.begin(), row.end());
    return end;
  };
  EXPECT_EQ(end_of(false), end_of(true));
}

TEST_F(PhasesTest, WhatWouldBeWrongLaterIsRefusedAtTheStart) {
  const auto why = [&](const std::string& more) {
    std::string refused;
    (void)Job(1).run([&](int, table::Table& table) -> Status {
      try {
        (void)parallel::run(parallel::read_job_spec(param(more), "x"), options_from(""), &table);
      } catch (const ConfigError& error) {
        refused = error.what();
      }
      return {};
    });
    return refused;
  };
  EXPECT_HAS(why("clip_gradients: 1" + phase("bsp") + phase("async")), "under scheme 'async");
  EXPECT_HAS(why(phase("bsp") + phase("async", "payload: DELTA momentum_policy: AVERAGE ")),
             "has momentum_policy AVERAGE, but");
  EXPECT_HAS(why(phase("bsp") + phase("grouped", "groups: '1' ")), "grouped");
  EXPECT_HAS(why("on_nan: WARN" + phase("bsp") + phase("async")), "on_nan is WARN");
  EXPECT_HAS(why(phase("bsp") + phase("async", "base_lr: nan ")), "base_lr");
}

// Begins a generation by the chief's wish alone: the run is the same, to the bit where workers are
// in step, and so is its scheme, until the phase ends.
TEST_F(PhasesTest, ANextGenerationInTheMidstOfAPhase) {
  const Trained plain =
      train_in_phases(param("display: 2 test_interval: 4 test_iter: 2 scheme { type: 'bsp' }"), 2);
  for (const int at : {1, 3, 4, 7}) {
    const Trained regrouped =
        train_in_phases(param("display: 2 test_interval: 4 test_iter: 2 scheme { type: 'bsp' }"), 2,
                        "", {.scheme = "", .at = at});
    ASSERT_EQ("", plain.why + regrouped.why);
    EXPECT_EQ(plain.end, regrouped.end) << at;
    EXPECT_EQ(plain.contributions, regrouped.contributions);
    ASSERT_EQ(regrouped.changes.size(), 1u) << at;
    EXPECT_LE(std::abs(regrouped.changes[0].start - at), 1);
  }
  const Trained other =
      train_in_phases(param(phase("bsp") + phase("async")), 2, "", {.scheme = "ssp 1", .at = 2});
  ASSERT_EQ("", other.why);
  ASSERT_EQ(other.changes.size(), 2u);
  EXPECT_EQ(other.changes[0].scheme, "ssp 1");
  EXPECT_EQ(other.changes[1].scheme, "async");
  EXPECT_EQ(other.contributions, 2 * 8 * other.rows);
  for (const Change& change : other.changes) EXPECT_EQ(change.before, change.after);
}

// Continues a run in its second phase.
TEST_F(PhasesTest, GoesOnFromASnapshotInTheMidstOfThem) {
  const std::string phases = phase("async") + phase("bsp");
  const Trained whole = train_in_phases(param("snapshot: 6" + phases), 2);
  const Trained rest =
      train_in_phases(param(phases), 2, state_path(snapshot_stem(folder_ + "/s", 6)));
  ASSERT_EQ("", whole.why + rest.why);
  EXPECT_EQ(whole.end, rest.end);
  EXPECT_TRUE(rest.changes.empty());
}

}  // namespace
}  // namespace shoal::test::phases_test
