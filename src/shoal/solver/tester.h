// Runs a solver's tests, and keeps the model with the best score.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shoal/solver/boundary.h"
#include "shoal/solver/precision.h"
#include "shoal/solver/reporter.h"
#include "shoal/solver/snapshots.h"
#include "shoal/solver/solver_core.h"

namespace shoal {

class Tester : SolverPart {
 public:
  // Throws ConfigError for a snapshot_best, an eval_type or an ap_version that makes no sense.
  Tester(const SolverCore& core, Reporter& reporter, Snapshots& snapshots, Boundary& boundary);

  Status test_all();
  Result<std::vector<TestScore>> test(int index);  // as Solver::test()

 private:
  Status run_batches(int index, std::vector<TestScore>& scores, double& loss);
  Status sum_scores(std::vector<TestScore>& scores, double& loss);
  Status keep_best(const std::vector<TestScore>& scores);
  void read_evaluation();
  void read_best();
  Status merge_judgements();
  std::vector<TestScore> precisions(const Net& net) const;

  Reporter& reporter_;
  Snapshots& snapshots_;
  Boundary& boundary_;
  std::string best_output_;  // "" if no best model is kept
  bool best_is_largest_ = true;
  std::optional<ApVersion> ap_version_;  // nothing: eval_type is not "detection"
  std::vector<Judgements> judgements_;   // of the present test, by output
};

}  // namespace shoal
