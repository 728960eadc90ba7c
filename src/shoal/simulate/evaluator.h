// Tests a simulated job's net with the rows as they are on the servers.
#pragma once

#include "shoal/simulate/simulated_worker.h"

namespace shoal::simulate {

// Returns the solver without snapshots and displays.
SolverParameter without_snapshots(SolverParameter param);

class Evaluator {
 public:
  Evaluator(const SolverParameter& param, const WorkerSetup& setup);

  // Returns the scores of the first test net; none without one, or before the rows exist.
  std::vector<TestScore> test(const Workers& workers);
  // Returns the values of all params; none before the rows exist.
  std::vector<float> weights();
  // Throws ConfigError unless `target` is an output of the test.
  void check(const std::string& target) const;

 private:
  bool load();
  void average_sums(const Workers& workers);

  SimulatedJob& job_;
  const std::vector<float>& own_;  // params that workers update themselves
  Solver solver_;
};

}  // namespace shoal::simulate
