// Runs clients, shards and the sum of norms on a simulated network with faults, in one thread, and
// checks what the table service promises. All of it follows from a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/table/types.h"
#include "support/history.h"
#include "support/unreliable_link.h"

namespace shoal::table {

// The part of a job under one plan.
struct Segment {
  Plan plan;
  Clock staleness = 0;       // the scheme's
  std::vector<Clock> stops;  // by worker
  // Workers retire at their stops. If not, all stop at one clock, or the scheme is async.
  bool retires = true;
  // (worker, clock): the worker skips the iteration, with a push of weight 0.
  std::set<std::pair<int, Clock>> skipped;
  // (worker, clock): the worker reads all rows and histories once more before it computes.
  std::set<std::pair<int, Clock>> reads_twice;
  // The rule is a plain sum, and the clip, if any, is never reached.
  bool exact = true;
};

// A process that is lost in the first generation: a worker other than 0, a server, or both. All
// others are told, each some time later.
struct Loss {
  Instant at{};  // after the start, or after the loss before
  // Not 0: it is lost when the message with this number is delivered, just before or after that.
  std::uint64_t message = 0;
  bool before = true;
  int worker = -1, server = -1;  // -1: it is none
  bool lives = false;            // a worker that goes on, and hears of nothing: a zombie
  bool breaks = false;           // what it has sent, and is on its way, is lost too
};

struct ClusterCase : Segment {
  std::uint64_t seed = 0;  // of the gradients, the times and the faults
  // The next generation. It begins when all have stopped, while their last messages are still on
  // their way.
  std::optional<Segment> next;
  std::vector<Loss> losses;
  Order order = Order::kPriority;
  UnreliableLinkOptions network;
  Instant compute = std::chrono::milliseconds(2);  // of one row, up to
  Instant limit = std::chrono::seconds(120);       // the longest wait for a row (I6)
};

UnreliableLinkOptions draw_network(Random& random);
ClusterCase draw_case(std::uint64_t seed);
// Returns the same job on a network without faults, and without a loss.
ClusterCase without_faults(ClusterCase one);
std::string describe(const ClusterCase& one);

struct ClusterRun {
  std::string wrong;                 // the first invariant that was broken, or ""
  History::Reads reads, next_reads;  // in the first generation, in the second
  Instant took{};
  // repeated: pushes that a shard had already; late: of the generation before.
  std::uint64_t frames = 0, lost = 0, resets = 0, repeated = 0, late = 0, losses = 0;
  std::uint64_t messages = 0;  // delivered
  bool ended = false;          // a row was lost before a worker had read it: the job cannot go on
};
ClusterRun run_cluster(const ClusterCase& one);

}  // namespace shoal::table
