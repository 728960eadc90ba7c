// Predicts the cost of taking a layer's gradients to all workers by each way, and the time of a
// whole iteration. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "shoal/layers/factored.h"
#include "shoal/parallel/exchange/way.h"
#include "shoal/parallel/rates.h"
#include "shoal/solver/compute_slices.h"

namespace shoal::parallel {

struct JobSize {
  std::int64_t workers = 1, servers = 1;
  int replicas = 1;  // nets of a worker
  // Some workers have no server in their process: their writes for the others go to a server and
  // from there to their readers. writers: the most workers whose writes one server sends on.
  bool relays = false;
  std::int64_t writers = 1;
  bool apart = false;  // no server has a worker in its process
};

struct LayerSize {
  std::int64_t params = 0;  // numbers that learn
  // The sizes of factors. rows: of all passes of a worker's replicas in an iteration.
  std::optional<Factored::Sizes> factors{};
  // The bytes of a number on its way to a server and back, and the seconds that codecs take for it
  // in both directions.
  double push_bytes = sizeof(float), pull_bytes = sizeof(float), codec_seconds = 0;
  double sum_bytes = sizeof(float);  // of a number that workers send each other
};

// The cost of one exchange in an iteration, for the process with the most work.
struct Cost {
  double numbers = 0;  // that it sends and receives, or would in float32 for as many bytes
  // Seconds: of its link, of messages that wait for each other, and of the larger product or of
  // codecs. All 0 if the bandwidth is unknown.
  double link = 0, latency = 0, product = 0;
  double seconds() const { return link + latency + product; }
};
// Returns the cost. Sources: Poseidon's HybComm (Zhang et al., ATC 2017) for the table and factors;
// for collectives the schedules of collective.h. FACTORS needs the size's factors.
Cost cost_of(Way way, const LayerSize& size, const JobSize& job, const Rates& rates);
// Returns whether factors are no more numbers than a weight (outputs, inputs) of the table's,
// without biases. A tie goes to factors.
bool factors_are_fewer(const Factored::Sizes& sizes, const JobSize& job);

// Returns the bytes of a bucket of small layers: so many that the link takes as long for them as
// for some messages; 1 MiB if the rates are unknown.
std::size_t bucket_bytes(const Rates& rates);

// An exchange of an iteration: of one layer, or of a bucket of them.
struct Leg {
  std::vector<int> layers;  // highest first
  Cost cost;
  // Seconds of `cost.link` that are for answers. Under a clip these wait for the norm of all
  // gradients.
  double answers = 0;
};
// The time of an iteration. A leg begins when the backward pass of its last layer is over. The link
// carries one leg at a time: of those that have begun the one whose last layer comes first in a
// forward pass, as rows' priorities have it. Each layer's next forward pass waits for its leg.
// Source: wait-free backpropagation (Zhang et al., ATC 2017), with the priorities of P3 (Jayarajan
// et al., MLSys 2019).
struct Forecast {
  ComputeSlices slices;
  std::vector<Leg> legs;  // in the order in which backward passes are over
  // The norm of all gradients is limited: no layer is updated before all legs are over, or before
  // all gradients are at their servers.
  bool clips = false;
  // Returns the seconds of an iteration whose passes alone take `compute` seconds.
  double seconds(double compute) const;
  // As above, given `busy` seconds without waiting, products included.
  double seconds_of_busy(double busy) const;
};

}  // namespace shoal::parallel
