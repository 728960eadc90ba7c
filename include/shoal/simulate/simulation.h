// Simulates a whole job in one process: the real client, shard, scheme, coordinator and solver,
// with real gradients of real data, on a network and a clock that are virtual. The same seed gives
// the same bits on any number of cores.
#pragma once

#include "shoal/simulate/cluster.h"
#include "shoal/solver/solver.h"
#include "shoal/table/table.h"

namespace shoal::simulate {

inline constexpr const char* kTrainLoss = "train_loss";  // the training loss, as a target

// A value that ends the simulation once it is reached.
struct Target {
  std::string output;  // of the first test net; or kTrainLoss
  double value = 0;
  bool at_most = false;  // the output falls to the value, as a loss does
};

// The state of the job at one instant.
struct Point {
  double seconds = 0;
  std::int64_t updates = 0;       // of the first row that learns
  std::int64_t iterations = 0;    // of all workers together
  double samples = 0;             // computed by all workers
  double samples_per_second = 0;  // since the last point
  std::uint64_t bytes = 0;        // that all processes have sent to others
  // The workers' mean since the last point, or that point's if none has finished an iteration
  // since; 0 before the first.
  double loss = 0;
  std::vector<TestScore> scores;  // of the first test net
};

struct SimulationOptions {
  std::string name = "solver";  // the name of the prototxt in errors
  // The seed of the network and the computing times. The solver has its own seed.
  std::uint64_t seed = 1;
  // Further limits, beside the solver's max_iter on every worker; 0: none.
  double seconds = 0;        // virtual
  double samples = 0;        // of all workers together
  std::int64_t updates = 0;  // of the first row that learns
  std::optional<Target> target{};
  // Virtual seconds between tests of the rows as they are on the servers. A test takes no virtual
  // time. 0: the solver's test_interval at the workers' mean speed; without numbers: never.
  double test_every = 0;
  int threads = 1;  // how many workers compute at once in real time
  // Rows are placed by the time that they take their servers, and not by bytes.
  bool by_time = false;
  // A folder for metrics.<worker>.jsonl (docs/reference/metrics.md), or "".
  std::string out{};
  // A folder for ESync's logs (docs/reference/metrics.md), or "".
  std::string esync_logs{};
  // Without numbers: nothing is computed or learned, no data is read, and messages have only sizes.
  // Losses are 0, and there are no scores.
  bool dry = false;
  std::function<void(const Point&)> saw{};  // is called with every point as it comes
};

struct WorkerFigures {
  std::int64_t iterations = 0;
  double samples = 0;
  double seconds = 0;  // when the worker ended
  double compute = 0;  // seconds of computing
  double rows = 0;     // seconds of waiting for rows
  double others = 0;   // seconds of waiting for other workers or the coordinator
  table::Traffic traffic;
  // Adds another process's, which came later in the same worker's place.
  WorkerFigures& operator+=(const WorkerFigures& later);
};

// The cost of the failures of a cluster's workers. A step is a task of one worker.
struct FailureFigures {
  std::size_t failures = 0;  // of workers
  std::size_t returns = 0;   // processes that joined in the places of lost ones
  double mean_workers = 0;   // that took part
  // Seconds without an update of the first row that learns, beyond the usual, of each failure and
  // each return after which there was another update.
  std::vector<double> stops_by_failures, stops_by_returns;
  // Steps: computed, in the params, and that could have been computed had no worker failed.
  double computed = 0, in_params = 0, possible = 0;
};

struct Outcome {
  std::string ending;  // why the run ended, in words
  std::string scheme;  // in words: "ssp 2"; the schemes of several phases one after the other
  double seconds = 0;
  std::vector<Point> points;               // the last one is the end
  std::vector<WorkerFigures> workers;      // of the cluster
  std::optional<FailureFigures> failures;  // none: no worker of the cluster may fail
  // Sums over all servers: merges, contributions, dropped pushes, and staleness in clocks.
  table::ShardCounters counters;
  // [v]: how many pushes were v versions old when they were merged; the last: or more.
  table::Staleness version_staleness{};
  std::vector<float> weights;  // of all rows, at the end
  std::vector<std::string> warnings;
};

// Simulates the solver with its schemes and phases. Throws ConfigError if solver, nets, scheme or
// cluster are wrong. Returns an error of training: a gradient that is not finite, data that cannot
// be read.
Result<Outcome> simulate(const SolverParameter& param, const Cluster& cluster,
                         const SimulationOptions& options);

// Parses "accuracy 0.98" or "loss 0.5". An output with "loss" in its name falls to the value,
// others rise. Throws ConfigError (kUsage).
Target parse_target(const std::string& words);

}  // namespace shoal::simulate
