// Keeps the account of failures in a simulated job: how many workers took part, how long no update
// came after a failure, and how much of the compute was useful. A step is a task of one worker (its
// clock): a forward and a backward pass, or, under schemes with local steps, several.
//
//   computed        the steps that workers have finished, and those that a failure has cut off
//   in the params   the steps whose pushes were merged; where workers write rows for each other,
//                   those that were finished and not made again
//   could have been computed   for each worker of the cluster, the time that it had, divided by its
//                   mean step when no failure is being dealt with
#pragma once

#include <optional>
#include <vector>

#include "shoal/simulate/simulation.h"

namespace shoal::simulate {

class FailureAccount {
 public:
  // `workers`: of the cluster. All take part from the start.
  explicit FailureAccount(std::size_t workers)
      : active_(static_cast<int>(workers)), steps_(workers) {}

  // ---- events, in the order of time ----
  // Notes that a worker is lost, which took part in this generation.
  void lose(Instant now, table::Generation generation);
  // Notes that a process asks to join in the place of a lost one. Returns a number for the other
  // two: it takes part from this generation on; it is lost before that.
  std::size_t asks();
  void joins(std::size_t number, Instant now, table::Generation generation);
  void gives_up(std::size_t number);
  // Notes that a worker begins its first step of a generation.
  void trains(table::Generation generation);
  // Notes that the first row that learns has had so many updates.
  void updated(Instant now, std::int64_t updates);
  // Notes that a worker's step, within a generation, has taken from one instant to another.
  void step(std::size_t worker, Instant from, Instant to);

  // ---- the end ----
  void add_steps(double computed, double in_params) {
    figures_.computed += computed;
    figures_.in_params += in_params;
  }
  // `had`: the seconds that each worker of the cluster had, whether it was lost or not.
  FailureFigures figures(Instant end, const std::vector<double>& had);

 private:
  // The time from a failure, or a request to join, until all train again and an update has come.
  struct Stop {
    bool joins = false;
    std::optional<table::Generation> after;  // all train again in a later generation than this
    bool resumed = false, over = false;
    Instant longest{};  // between two updates
  };
  struct Steps {
    Instant quiet{}, all{};
    std::int64_t quiet_count = 0, count = 0;
    std::optional<double> mean() const;
  };

  void pass(Instant now);

  FailureFigures figures_;
  int active_ = 0;
  double active_seconds_ = 0;  // sum over workers
  Instant at_{};               // until which it is counted
  std::vector<Stop> stops_;
  std::vector<std::size_t> open_;  // stops that are not over
  Instant quiet_since_{};          // no stop was open since
  std::int64_t updates_ = 0;
  Instant updated_{};  // the last time
  Instant gaps_{};     // between updates, when no stop was open
  std::int64_t gap_count_ = 0;
  std::vector<Steps> steps_;  // by worker of the cluster
};

}  // namespace shoal::simulate
