// Times of a run, by which it may end, and what its worker might have done with them.
#pragma once

#include <chrono>
#include <optional>

#include "shoal/solver/solver.h"
#include "shoal/table/scheme_spec.h"

namespace shoal {

// Knows when the iterations of a run began and ended.
class TimesOfRun {
 public:
  // Returns what to do after an iteration: what is asked, or an end when `limit` seconds are over;
  // 0: no limit.
  Action action(double limit, Action asked);
  // Says what would have used the time since the last iteration, in which slower workers still made
  // theirs: under schemes that let each worker run on, if it was long.
  void suggest_sharing(int worker, const table::SchemeSpec& spec) const;

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> first_;
  Clock::time_point last_;
  bool ended_ = false;
};

}  // namespace shoal
