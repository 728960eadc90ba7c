// Drift barrier: SpeeDO's own vectors, and every order in which three workers can finish four tasks
// each.
#include "shoal/table/pacer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "shoal/base/error.h"
#include "shoal/table/scheme.h"
#include "support/pacer_rig.h"
#include "support/schemes.h"

namespace shoal::test::drift_barrier_test {
namespace {

// ---- drift barrier ----

TEST(DriftBarrier, VectorOfTheOriginal) {
  PacerRig rig("drift_barrier 2");
  EXPECT_EQ(rig.ready(0), WorkerNumbers{0});
  EXPECT_EQ(rig.ready(0), WorkerNumbers{});
  EXPECT_EQ(rig.ready(1), WorkerNumbers{});
  EXPECT_EQ(rig.ready(2), (WorkerNumbers{0, 1, 2}));
  EXPECT_EQ(rig.reread, (WorkerNumbers{0, 1}));  // worker 2 has the newest rows
  EXPECT_EQ(rig.ready(0), WorkerNumbers{0});     // counted anew
  EXPECT_EQ(rig.ready(0), WorkerNumbers{});      // two ahead of the others again
}

TEST(DriftBarrier, WorkersThatSendWeightsGoOnFromTheirOwn) {
  PacerRig rig("drift_barrier 1 payload=weights", 2);
  EXPECT_EQ(rig.ready(0), WorkerNumbers{});
  EXPECT_EQ(rig.ready(1), (WorkerNumbers{0, 1}));
  EXPECT_EQ(rig.reread, WorkerNumbers{});
}

TEST(DriftBarrier, WhoJoinsDuringABarrierStartsWithTheOthers) {
  PacerRig rig("drift_barrier 1");
  EXPECT_EQ(rig.ready(0), WorkerNumbers{});
  rig.pacer->join(3, {});
  EXPECT_EQ(rig.ready(3), WorkerNumbers{});
  EXPECT_EQ(rig.ready(1), WorkerNumbers{});
  EXPECT_EQ(rig.ready(2), (WorkerNumbers{0, 1, 2, 3}));
  EXPECT_EQ(rig.reread, (WorkerNumbers{0, 1, 3}));
  rig.pacer->join(4, {});  // outside a barrier: at once
  EXPECT_EQ(rig.ready(4), WorkerNumbers{4});
}

TEST(DriftBarrier, WhoJoinsBetweenBarriersCountsAsTheForemost) {
  PacerRig rig("drift_barrier 2");
  EXPECT_EQ(rig.ready(0), WorkerNumbers{0});
  rig.pacer->join(3, {});
  EXPECT_EQ(rig.ready(3), WorkerNumbers{3});
  EXPECT_EQ(rig.ready(3), WorkerNumbers{});  // one more, and it is 2 ahead
  PacerRig late("drift_barrier 1");
  EXPECT_EQ(late.ready(0), WorkerNumbers{});
  late.pacer->join(3, {});
  EXPECT_EQ(late.ready(1), WorkerNumbers{});
  EXPECT_EQ(late.ready(2), (WorkerNumbers{0, 1, 2}));  // it joined, and has not asked yet
  EXPECT_EQ(late.ready(3), WorkerNumbers{3});
}

TEST(DriftBarrier, WhoLeavesIsNotWaitedFor) {
  PacerRig rig("drift_barrier 1");
  EXPECT_EQ(rig.ready(0), WorkerNumbers{});
  EXPECT_EQ(rig.leave(1), WorkerNumbers{});
  EXPECT_EQ(rig.leave(2), WorkerNumbers{0});  // the barrier ends, and all count from 1
  EXPECT_EQ(rig.ready(0), WorkerNumbers{0});
  EXPECT_EQ(rig.leave(0), WorkerNumbers{});
  PacerRig first("drift_barrier 1");
  EXPECT_EQ(first.ready(0), WorkerNumbers{});
  EXPECT_EQ(first.leave(0), WorkerNumbers{});  // who waits may go too
  EXPECT_EQ(first.ready(1), WorkerNumbers{});
  EXPECT_EQ(first.ready(2), (WorkerNumbers{1, 2}));
}

TEST(DriftBarrier, AWorkerThatHasNotBegunHasItsFirstTaskBeforeIt) {
  const auto pacer = table::make_scheme("drift_barrier 1").value()->make_pacer();
  for (const int worker : {0, 1}) pacer->join(worker, {});
  pacer->ready(0, 0, {}, {});
  pacer->ready(0, 1, {}, {});
  EXPECT_EQ(pacer->take_starts({}).size(), 1u);
  pacer->ready(1, 0, {}, {});  // during the barrier
  ASSERT_EQ(pacer->take_starts({}).size(), 1u);
  pacer->ready(1, 1, {}, {});
  EXPECT_EQ(pacer->take_starts({}).size(), 2u);
}

TEST(DriftBarrier, AnAdvanceOfNoneIsRefused) {
  for (const char* words :
       {"drift_barrier", "drift_barrier 0", "drift_barrier -1", "drift_barrier max_advance=x"})
    EXPECT_FALSE(table::make_scheme(words).ok()) << words;
  const auto scheme =
      table::make_scheme("drift_barrier max_advance=3 payload=delta local_steps=2").value();
  EXPECT_EQ(scheme->name(), "drift_barrier 3 payload=delta local_steps=2");
  EXPECT_TRUE(scheme->task.paced);
  EXPECT_FALSE(scheme->task.judged);
  EXPECT_FALSE(scheme->bounded());
}

// The rule as schemes.md has it, for workers that leave when they have done their tasks.
struct PlainDrift {
  std::map<int, int> iters;
  bool catchup = false;
  std::set<int> waits_for, held;

  WorkerNumbers done(int k, int advance, bool last) {
    if (last) return gone(k);
    if (!catchup) {
      iters[k] += 1;
      int least = 1 << 30, most = 0;
      for (const auto& [worker, iter] : iters)
        least = std::min(least, iter), most = std::max(most, iter);
      if (most - least < advance) return {k};
      catchup = true;
      for (const auto& [worker, iter] : iters)
        if (worker != k) waits_for.insert(worker);
      held = {k};
      return {};
    }
    held.insert(k);
    return caught_up(k);
  }
  WorkerNumbers gone(int k) {
    iters.erase(k);
    return catchup ? caught_up(k) : WorkerNumbers{};
  }
  WorkerNumbers caught_up(int k) {
    waits_for.erase(k);
    if (!waits_for.empty()) return {};
    catchup = false;
    for (auto& [worker, iter] : iters) iter = 1;
    const WorkerNumbers all(held.begin(), held.end());
    held.clear();
    return all;
  }
};

TEST(DriftBarrier, EveryInterleavingOfThreeWorkersAndFourTasks) {
  for (const int advance : {1, 2, 3}) {
    int feasible = 0;
    in_every_interleaving(3, 4, [&](const WorkerNumbers& order) {
      PacerRig rig(str("drift_barrier ", advance));
      PlainDrift plain{.iters = {{0, 1}, {1, 1}, {2, 1}}, .waits_for = {}, .held = {}};
      // completions since the last barrier, of those that are there
      std::map<int, int> left{{0, 4}, {1, 4}, {2, 4}}, since;
      std::set<int> running{0, 1, 2};
      for (const int worker : order) {
        if (!running.contains(worker)) return;  // this order cannot be: it waits
        running.erase(worker);
        const bool last = --left[worker] == 0;
        const bool before = plain.catchup;
        const WorkerNumbers expected = plain.done(worker, advance, last),
                            starts = last ? rig.leave(worker) : rig.ready(worker);
        ASSERT_EQ(starts, expected) << testing::PrintToString(order);
        ++since[worker];
        if (before && !plain.catchup) since.clear();
        int least = 1 << 30, most = 0;
        for (const auto& [other, tasks] : left)
          if (tasks > 0) least = std::min(least, since[other]), most = std::max(most, since[other]);
        ASSERT_LE(most - least, advance);
        for (const int other : starts) ASSERT_TRUE(running.insert(other).second) << "started twice";
        ASSERT_TRUE(!running.empty() || std::ranges::all_of(left, [](const auto& entry) {
          return entry.second == 0;
        })) << "nobody can go on";
      }
      ++feasible;
    });
    EXPECT_GT(feasible, advance == 1 ? 200 : 1000) << advance;
  }
}

}  // namespace
}  // namespace shoal::test::drift_barrier_test
