// Tests how each scheme treats a worker that joins, in a plan of its generation, and of one that
// leaves: the rules of docs/choosing-a-scheme.md, a case each. Those that pacers take are in
// drift_barrier_test, completion_window_test and esync_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shoal/base/random.h"
#include "support/schemes.h"
#include "support/shard_rig.h"

namespace shoal::table::scheme_membership_test {
namespace {

using test::plan_of;
using test::ShardRig;

// A push of this number, or, where it has none, a read, or "leaves".
struct Step {
  enum class What { kReads, kPushes, kLeaves } what;
  int worker;
  Clock clock;
  float value;
  std::string said;
};
Step reads(int worker, Clock clock, const std::string& said) {
  return {Step::What::kReads, worker, clock, 0, said};
}
Step pushes(int worker, Clock clock, float value, const std::string& said) {
  return {Step::What::kPushes, worker, clock, value, said};
}
Step leaves(int worker, const std::string& said) {
  return {Step::What::kLeaves, worker, 0, 0, said};
}

struct Case {
  const char* rule;
  const char* words;
  // at which the workers of the generation begin; the last is the one that has joined
  std::vector<Clock> clocks;
  std::vector<Step> steps;
};

std::vector<Case> cases() {
  return {
      {"bsp waits for who joins, and not for who left",
       "bsp",
       {2, 2, 2},
       {pushes(0, 2, 3, ""), pushes(1, 2, 3, ""),
        pushes(2, 2, 9, "row 0@3=-5v3 to 0, row 0@3=-5v3 to 1, row 0@3=-5v3 to 2"),
        pushes(0, 3, 1, ""), pushes(1, 3, 3, ""),
        leaves(2, "row 0@4=-7v4 to 0, row 0@4=-7v4 to 1")}},
      {"local_steps: the mean is of all, then of the others",
       "local_steps",
       {2, 2, 2},
       {pushes(0, 2, 3, ""), pushes(1, 2, 3, ""),
        pushes(2, 2, 9, "row 0@3=5v3 to 0, row 0@3=5v3 to 1, row 0@3=5v3 to 2"),
        pushes(0, 3, 1, ""), pushes(1, 3, 3, ""), leaves(2, "row 0@4=7v4 to 0, row 0@4=7v4 to 1")}},
      {"ssp: who joins is where the slowest is, holds up nobody more than that one, and is held up "
       "by nobody",
       "ssp 1 factor=1",
       {3, 2, 2},
       {reads(2, 2, "row 0@2=0v2 to 2"), pushes(2, 2, 1, "row 0@3=-1v3 to 2"), pushes(0, 3, 1, ""),
        pushes(1, 2, 1, "row 0@4=-3v5 to 0, row 0@3=-3v5 to 1")}},
      {"ssp: who waited for one that leaves goes on",
       "ssp 1 factor=1",
       {3, 2, 2},
       {pushes(0, 3, 1, ""), pushes(1, 2, 1, "row 0@3=-2v4 to 1"), leaves(2, "row 0@4=-2v4 to 0")}},
      {"async: each begins and goes on by itself",
       "async factor=1",
       {9, 2, 2},
       {pushes(2, 2, 1, "row 0@3=-1v3 to 2"), pushes(0, 9, 1, "row 0@10=-2v4 to 0"), leaves(1, ""),
        pushes(2, 3, 1, "row 0@4=-3v5 to 2")}},
      {"async: the rate is of the generation's workers",
       "async",
       {9, 2, 2},
       {pushes(0, 9, 6, "row 0@10=-2v3 to 0"), leaves(2, ""),
        pushes(0, 10, 6, "row 0@11=-4v4 to 0")}},
      {"dc_asgd: what it last read is what it begins with",
       "dc_asgd compensation=1 factor=1",
       {9, 2},
       {reads(0, 9, "row 0@9=0v2 to 0"), reads(1, 2, "row 0@2=0v2 to 1"),
        pushes(0, 9, 1, "row 0@10=-1v3 to 0"), pushes(1, 2, 2, "row 0@3=1v4 to 1")}},
      {"elastic: alpha is of the generation's workers",
       "elastic",
       {2, 2, 2},
       {pushes(2, 2, 10, "row 0@3=7v3 to 2"), leaves(1, ""),
        pushes(2, 3, 23, "row 0@4=17v4 to 2")}},
      {"weed_out: the first of who joins is as late as what it read, whatever the others' clocks",
       "weed_out max_version_lag=0 factor=1",
       {9, 2},
       {pushes(1, 2, 1, "row 0@3=-1v3 to 1"), pushes(0, 9, 1, "row 0@10=-1v3 to 0"), leaves(1, ""),
        pushes(0, 10, 1, "row 0@11=-2v4 to 0")}},
  };
}

TEST(SchemeMembership, EachSchemesRules) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.rule);
    Plan plan = plan_of(one.words, static_cast<std::uint16_t>(one.clocks.size()));
    plan.generation = 0;
    plan.clocks = one.clocks;
    plan.start = 2;
    ShardRig rig(plan);
    for (const Step& step : one.steps) {
      if (step.what == Step::What::kReads) rig.give(step.worker, Get{0, step.clock});
      if (step.what == Step::What::kPushes) rig.push(step.worker, step.clock, step.value);
      if (step.what == Step::What::kLeaves) rig.leave(step.worker);
      EXPECT_EQ(rig.said(), step.said);
    }
  }
}

// Decides as another scheme, and compares what the shard says of a row with the row's workers and
// pushes.
class Checked final : public Scheme {
 public:
  explicit Checked(std::unique_ptr<Scheme> scheme)
      : Scheme(scheme->spec(), *scheme), scheme_(std::move(scheme)) {}
  std::optional<Merge> next_merge(const RowView& row) const override {
    check(row);
    return scheme_->next_merge(row);
  }
  bool readable(const RowView& row, int worker, Clock clock) const override {
    check(row);
    return scheme_->readable(row, worker, clock);
  }

 private:
  static void check(const RowView& row) {
    Clock slowest = kUnbounded;
    for (const WorkerView& worker : row.workers)
      if (worker.counts) slowest = std::min(slowest, worker.pushed);
    EXPECT_EQ(row.slowest, slowest);
    if (row.held.empty()) return;
    EXPECT_EQ(row.oldest, std::ranges::min_element(row.held, {}, &Contribution::clock)->clock);
  }

  const std::unique_ptr<Scheme> scheme_;
};

// Workers push when they like, retire, come back, and are lost one after the other.
TEST(SchemeView, TheSlowestWorkerAndTheOldestPushAreKnownWhateverHappens) {
  const SchemeMaker maker = [](const SchemeSpec& spec) -> Result<std::unique_ptr<Scheme>> {
    return std::unique_ptr<Scheme>(std::make_unique<Checked>(spec.make().value()));
  };
  for (const char* words :
       {"bsp", "ssp 1", "async", "grouped groups=0,2|1,3", "sync_backup backup=1"}) {
    SCOPED_TRACE(words);
    Plan plan = plan_of(words, 4);
    plan.clocks = {0, 2, 1, 0};
    ShardRig rig(plan, 0, 0, maker);
    std::vector<Clock> next = plan.clocks;
    std::vector<bool> retired(4);
    Random random(7);
    for (int left = 4; left > 1; rig.leave(--left)) {
      for (int i = 0; i < 100; ++i) {
        const auto worker = random.below(static_cast<std::uint64_t>(left));
        if (!retired[worker] && random.below(8) == 0) {
          rig.give(static_cast<int>(worker), Retire{next[worker]});
          retired[worker] = true;
        } else {
          rig.push(static_cast<int>(worker), next[worker]++, 1);
          retired[worker] = false;
        }
        rig.said();
      }
    }
    EXPECT_GT(rig.shard().counters().merges, 50u);
  }
}

}  // namespace
}  // namespace shoal::table::scheme_membership_test
