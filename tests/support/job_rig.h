// Trains one solver alone, or as the workers and replicas of a job in this process, and returns the
// params.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shoal/proto/solver.pb.h"
#include "shoal/solver/solver.h"
#include "shoal/table/shard.h"

namespace shoal::test {

struct JobShape {
  int workers = 0;  // 0: no table
  int servers = 1;
  int replicas = 1;
  bool over_tcp = false;  // services on threads, and not a simulated job
  std::string scheme = "bsp";
  table::SchemeMaker maker = table::make_scheme;
  std::vector<int> stops = {50};  // iterations after which the params are kept
  // Called on every worker's thread (alone: on this one) before the first iteration and after the
  // last.
  std::function<void(int worker, Solver&solver)> before{}, after{};
  // what differs from worker to worker
  std::function<void(int worker, SolverParameter& param)> change{};
};

using Weights = std::vector<float>;

struct JobResult {
  std::vector<std::vector<Weights>> weights;  // of worker w at stop i
  std::vector<std::vector<float>> losses;     // of worker w's iterations
  std::vector<Status> outcomes;
  bool ok() const;
  std::string why() const;  // the first error
  const Weights& at(std::size_t stop) const { return weights[0].at(stop); }
};
JobResult train(const SolverParameter& param, const JobShape& shape);

// |a - b| / |b|, in double.
double distance(const Weights& a, const Weights& b);

}  // namespace shoal::test
