// A cluster as it is imagined: its processes, how long they compute, and the network between them.
// docs/simulate.md.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/table/pacer.h"
#include "shoal/table/placement.h"

namespace shoal {
class ClusterParameter;
class Net;
}  // namespace shoal

namespace shoal::simulate {

using table::Instant;

double to_seconds(Instant time);
Instant to_instant(double seconds);

// How a pass over a net is divided among its layers: parts of one iteration, which are 1 together.
struct LayerShares {
  std::vector<double> forward, backward;  // by layer
};

// How long one worker computes.
struct Compute {
  enum class Distribution { kConstant, kUniform, kNormal, kLognormal, kExponential };
  double mean = 0.1;  // seconds an iteration, with `speed` in it
  Distribution distribution = Distribution::kConstant;
  double jitter = 0;
  std::vector<double> trace;  // seconds, by iteration; empty: drawn
  struct Slow {
    Instant from{}, to = Instant::max();
    double factor = 1;
  };  // factor 0: a pause
  std::vector<Slow> slow;
  struct Layer {
    std::string name;
    double forward = 0, backward = 0;
  };                          // seconds
  std::vector<Layer> layers;  // as measured; empty: estimated

  // Seconds of the n-th iteration, slowdowns apart.
  double draw(std::size_t n, Random& random) const;
  // When work of so many seconds that begins now is done.
  Instant done(Instant now, double seconds) const;
};

struct Process {
  bool worker = true, server = false;
  Compute compute;       // of workers
  double bandwidth = 0;  // bytes a second, each way; 0: no limit
  Instant latency{}, jitter{};
  double seconds_per_byte = 0;  // that a pushed byte keeps the server busy
};

struct Cluster {
  std::vector<Process> processes;  // by rank
  // a process's links divide its bandwidth; otherwise each has as much
  bool shared = true;
  bool overlap = true;
  std::optional<Instant> coordinator_latency;
  int workers() const;
  int servers() const;
  // For the placement of rows: what their links and updates take. Links that divide nothing have a
  // bandwidth for each worker.
  table::Servers known_servers() const;
};

// Throw ConfigError: text that does not parse, no worker, a number that makes no sense, a trace or
// log that cannot be read. Paths are as seen from where the program runs.
Cluster read_cluster(const std::string& path);
Cluster parse_cluster(const std::string& text, const std::string& name);

// As `compute` measured it, or by the arithmetic that the layers do. Throws ConfigError if it
// measured another net.
LayerShares shares_of(const Net& net, const Compute& compute);

}  // namespace shoal::simulate
