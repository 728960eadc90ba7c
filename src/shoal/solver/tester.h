// Runs a solver's tests, and keeps the model with the best score.
#pragma once

#include <string>
#include <vector>

#include "shoal/solver/boundary.h"
#include "shoal/solver/reporter.h"
#include "shoal/solver/snapshots.h"
#include "shoal/solver/solver_core.h"

namespace shoal {

class Tester : SolverPart {
 public:
  // Throws ConfigError for a snapshot_best that makes no sense.
  Tester(const SolverCore& core, Reporter& reporter, Snapshots& snapshots, Boundary& boundary);

  Status test_all();
  Result<std::vector<TestScore>> test(int index);  // as Solver::test()

 private:
  Status run_batches(int index, std::vector<TestScore>& scores, double& loss);
  Status sum_scores(std::vector<TestScore>& scores, double& loss);
  Status keep_best(const std::vector<TestScore>& scores);

  Reporter& reporter_;
  Snapshots& snapshots_;
  Boundary& boundary_;
  std::string best_output_;  // "" if no best model is kept
  bool best_is_largest_ = true;
};

}  // namespace shoal
