// Drives a scheme's pacer with workers that a test moves on in any order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shoal/table/pacer.h"
#include "shoal/table/scheme.h"
#include "support/schemes.h"

namespace shoal::test {

using WorkerNumbers = std::vector<int>;

// Each worker asks to start as soon as it has finished a task.
struct PacerRig {
  explicit PacerRig(const std::string& scheme, int workers = 3)
      : pacer(table::make_scheme(scheme).value()->make_pacer()) {
    for (int worker = 0; worker < workers; ++worker) pacer->join(worker, {});
    for (int worker = 0; worker < workers; ++worker)
      EXPECT_EQ(ready(worker), WorkerNumbers{worker});
  }
  // Returns the workers that start then.
  WorkerNumbers ready(int worker) {
    pacer->ready(worker, clock[worker]++, {}, {});
    return started();
  }
  WorkerNumbers started() {
    WorkerNumbers workers;
    reread.clear();
    for (const table::Start& start : pacer->take_starts({})) {
      workers.push_back(start.worker);
      if (start.reread) reread.push_back(start.worker);
    }
    std::ranges::sort(workers);
    return workers;
  }
  WorkerNumbers leave(int worker) {
    pacer->leave(worker, {});
    return started();
  }
  // Returns the verdict on the worker's next task: 'p' counts, 'd' is dropped.
  char judge(int worker) {
    return pacer->judge(worker, clock[worker]++, {.steps = 1}, {}) == table::Verdict::kDrop ? 'd'
                                                                                            : 'p';
  }

  std::unique_ptr<table::Pacer> pacer;
  std::map<int, table::Clock> clock;
  WorkerNumbers reread;  // of those that started last
};

// Calls `run(order)` with every order in which `workers` can finish `tasks` each.
inline void in_every_interleaving(int workers, int tasks,
                                  const std::function<void(const WorkerNumbers&)>& run) {
  WorkerNumbers order;
  for (int i = 0; i < workers * tasks; ++i) order.push_back(i / tasks);
  do {
    run(order);
  } while (std::ranges::next_permutation(order).found && !testing::Test::HasFailure());
}

}  // namespace shoal::test
