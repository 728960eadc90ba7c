// Describes a simulated cluster: its processes, how long they compute, and the network between
// them. docs/simulating-a-cluster.md.
#pragma once

#include <algorithm>
#include <optional>

#include "shoal/base/random.h"
#include "shoal/base/timer.h"
#include "shoal/table/pacer.h"
#include "shoal/table/placement.h"

namespace shoal {
enum ComputeParameter_Distribution : int;
}  // namespace shoal

namespace shoal::simulate {

using table::Instant;

Instant to_instant(double seconds);

// The time that a worker computes.
struct Compute {
  double mean = 0.1;                             // seconds an iteration, divided by `speed`
  ComputeParameter_Distribution distribution{};  // CONSTANT
  double jitter = 0;
  std::vector<double> trace;  // seconds, by iteration; empty: they are drawn
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

  // Returns the seconds of the n-th iteration, slowdowns apart.
  double draw(std::size_t n, Random& random) const;
  // Returns when work of `seconds` that begins `now` is done, slowdowns included.
  Instant done(Instant now, double seconds) const;
};

// The failures of a process, and when another comes in its place.
struct Failure {
  double mtbf = 0;               // the mean seconds from its start to its failure; 0: only `at`
  std::vector<double> at;        // seconds of the run
  std::optional<double> repair;  // seconds until another asks to join; none: none does
  Instant unnoticed{};           // beside the latency, until the coordinator notes it
};

struct Process {
  bool worker = true, server = false;
  Compute compute{};     // of a worker
  double bandwidth = 0;  // bytes a second, each way; 0: no limit
  Instant latency{}, jitter{};
  double seconds_per_byte = 0;  // how long a pushed byte keeps the server busy
  std::optional<Failure> failure{};
};

struct Cluster {
  std::vector<Process> processes;  // by rank
  // The links of a process divide its bandwidth; otherwise each link has all of it.
  bool shared = true;
  bool overlap = true;  // workers send and receive while they compute
  std::optional<Instant> coordinator_latency;
  int workers() const { return count(&Process::worker); }
  int servers() const { return count(&Process::server); }
  bool has_failures() const {
    return std::ranges::any_of(processes,
                               [](const Process& one) { return one.failure.has_value(); });
  }
  // Returns the speeds of the servers, for the placement of rows. A server whose links do not
  // divide its bandwidth has that for each worker.
  table::Servers known_servers() const;

 private:
  int count(bool Process::*role) const;
};

// Both throw ConfigError for text that does not parse, a cluster without workers, a number that
// makes no sense, and a trace or log that cannot be read. Paths are relative to the current folder.
Cluster read_cluster(const std::string& path);
Cluster parse_cluster(const std::string& text, const std::string& name);

}  // namespace shoal::simulate
