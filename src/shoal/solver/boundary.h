// Acts on requests to a solver between two iterations, on which its team agrees.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/solver/snapshots.h"
#include "shoal/solver/solver_core.h"

namespace shoal {

class Boundary : SolverPart {
 public:
  Boundary(const SolverCore& core, Snapshots& snapshots)
      : SolverPart(core), snapshots_(snapshots) {}

  // Enters the boundary before the first of some iterations.
  Status enter();
  // Passes the boundary between two iterations: writes a snapshot if one is due, and does what the
  // team agrees on.
  Status pass();
  // Does the action: a snapshot, an end.
  Status act(Action action);
  // Returns when the next iteration may begin: the iteration whose rate applies. Nothing: the run
  // has ended.
  Result<std::optional<std::int64_t>> wait_to_begin();
  // Called after the last iteration of this member, where members are at iterations of their own.
  // Until all have finished theirs, it takes part in whatever they do together. From then on all
  // act together.
  Status end_apart();
  Result<bool> wants_last_snapshot();
  // Called after a loss has interrupted all members, once they have come to one iteration: ends
  // this part of the run as all agree, with the snapshot that is due.
  Status end_interrupted();
  // Returns how the run is to end, if that was asked for since forget_ending().
  const std::optional<Ending>& ending() const { return ending_; }
  void forget_ending() {
    ending_.reset();
    agreed_end_.reset();
  }

 private:
  Action asked();
  Status stop_for_others();
  Result<bool> leave();

  Snapshots& snapshots_;
  // The iteration before which the team last agreed on an action.
  std::optional<std::int64_t> agreed_at_;
  // The iteration whose pushes send along what codecs have left out: the last before this member
  // leaves.
  std::optional<std::int64_t> sends_left_out_;
  std::optional<Ending> ending_;
  std::optional<Action> agreed_end_;  // known, and perhaps not done yet
};

}  // namespace shoal
