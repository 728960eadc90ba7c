// Does what on_nan says about a loss or a gradient that is not finite.
#pragma once

#include <string>

#include "shoal/net/forward_state.h"
#include "shoal/solver/snapshots.h"
#include "shoal/solver/solver_core.h"

namespace shoal {

class NonFiniteGuard : SolverPart {
 public:
  NonFiniteGuard(const SolverCore& core, Snapshots& snapshots)
      : SolverPart(core), snapshots_(snapshots) {}

  // Keeps the values that the forward passes of a step will change.
  void save_forward_state();
  // Judges an iteration in which `what` is not finite. An error ends the run; true: update all the
  // same; false: the iteration was left out.
  Result<bool> judge(const std::string& what);

 private:
  bool params_are_finite();

  Snapshots& snapshots_;
  ForwardState before_;               // this iteration
  std::uint64_t bad_iterations_ = 0;  // whose loss or gradient was not finite
};

}  // namespace shoal
