// Keeps the state that a run has between two iterations, so that an iteration that cannot be
// finished leaves no trace in a snapshot.
#pragma once

#include <deque>
#include <optional>

#include "shoal/net/forward_state.h"
#include "shoal/solver/snapshots.h"
#include "shoal/solver/solver_core.h"

namespace shoal {

class LastIteration : SolverPart {
 public:
  LastIteration(const SolverCore& core, Snapshots& snapshots)
      : SolverPart(core), snapshots_(snapshots) {}

  // Returns whether a snapshot after an error is possible. A team cannot be asked: others are in
  // another iteration by then, and wait for this one.
  bool can_be_saved() const { return !core_.in_team() && core_.wants_snapshots(); }
  // Keeps, after an iteration, the values that the next one's passes change beside gradients, if it
  // can be saved. A device with memory of its own would be waited for: of such a net running sums
  // are left out, and nothing is kept if it carries states from pass to pass.
  void keep();
  // Keeps the losses up to the iteration that was kept, which are known only now.
  void keep_losses();
  // Restores the values that passes have changed since. Returns the losses of then; null: nothing
  // was kept.
  const std::deque<float>* go_back();

 private:
  struct State {
    RunState nets;
    ForwardState sums;
    std::deque<float> losses;
  };
  Snapshots& snapshots_;
  std::optional<State> state_;
};

}  // namespace shoal
