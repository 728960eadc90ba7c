// A whole job in one process and in virtual time: the real client, shard, scheme, coordinator and
// solver, real gradients of real data, on a network and a clock that are imagined. The same seed
// gives the same bits, on any number of cores.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/simulate/cluster.h"
#include "shoal/solver/solver.h"
#include "shoal/table/shard.h"
#include "shoal/table/table.h"

namespace shoal::simulate {

struct Target {
  std::string output;  // of the first test net; or "train_loss"
  double value = 0;
  bool at_most = false;  // reached from above: a loss
};

struct SimulationOptions {
  std::string name = "solver";  // of the prototxt, for errors
  // of what is drawn for the network and the times; the solver has its own
  std::uint64_t seed = 1;
  // Where it ends, beside the solver's max_iter on every worker; 0: nowhere. Seconds are virtual.
  double seconds = 0;
  double samples = 0;        // of all workers
  std::int64_t updates = 0;  // of the first row that learns
  std::optional<Target> target{};
  // Virtual seconds between tests of the rows as they are on the servers; they take no virtual
  // time. 0: the solver's test_interval at the workers' mean speed, or never.
  double test_every = 0;
  int threads = 1;  // workers that really compute at once
  // rows are placed by what they take their servers; otherwise by bytes
  bool by_time = false;
  // a folder for metrics.<worker>.jsonl (docs/metrics.md), or ""
  std::string out{};
  // a folder for ESync's logs (docs/metrics.md), or ""
  std::string esync_logs{};
};

// What is known at one instant.
struct Point {
  double seconds = 0;
  // of the first row that learns; of all workers together
  std::int64_t updates = 0, iterations = 0;
  double samples = 0;             // computed by all workers
  double samples_per_second = 0;  // since the last point
  // the workers' mean since the last point; 0 if none finished an iteration
  double loss = 0;
  double bytes = 0;               // that have left over wires
  std::vector<TestScore> scores;  // of the first test net
};

struct WorkerFigures {
  std::int64_t iterations = 0;
  double samples = 0;
  double seconds = 0;  // when it ended
  // seconds: computing, waiting for rows, waiting for the others or the coordinator
  double compute = 0, rows = 0, others = 0;
  table::Traffic traffic;
};

struct Outcome {
  std::string ending;  // why it ended
  // "ssp 2"; of phases, the schemes one after the other
  std::string scheme;
  double seconds = 0;
  std::vector<Point> points;  // the last at the end
  std::vector<WorkerFigures> workers;
  table::Traffic traffic;         // of all links; what was sent is what was received
  table::ShardCounters counters;  // of all servers; staleness in clocks
  // how many pushes were so many versions old when they were merged; the last: or more
  std::vector<std::uint64_t> version_staleness;
  std::vector<float> weights;  // of all rows, at the end
  std::vector<std::string> warnings;
  std::optional<double> reached;  // when the target was
};

// With the schemes that the solver says, in its phases. `saw` hears of every point as it comes.
// Throws ConfigError for what is wrong with solver, nets, scheme or cluster. An error is one of
// training's: a gradient that is not finite, data that cannot be read.
Result<Outcome> simulate(const SolverParameter& param, const Cluster& cluster,
                         const SimulationOptions& options,
                         const std::function<void(const Point&)>& saw = {});

// The same without numbers: nothing is computed or learned, no data is read, and of what is sent
// only the size counts. Losses and scores are 0 and none.
Result<Outcome> simulate_dry(const SolverParameter& param, const Cluster& cluster,
                             const SimulationOptions& options,
                             const std::function<void(const Point&)>& saw = {});

// "accuracy 0.98", "loss 0.5": an output with "loss" in its name is to fall to the value, others
// are to rise. Throws ConfigError (kUsage).
Target parse_target(const std::string& words);

}  // namespace shoal::simulate
