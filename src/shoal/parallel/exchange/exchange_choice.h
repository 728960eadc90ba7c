// Chooses, for each layer of a net, the way in which its gradients travel between workers. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shoal/parallel/exchange/codec_choice.h"
#include "shoal/parallel/exchange/exchange_cost.h"
#include "shoal/solver/exchange.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {

// The time at which factors become updates under a scheme: those of a clock are one update, with
// the sum that this scheme in lockstep takes, before the iteration that many clocks later.
struct FactorTiming {
  table::SchemeSpec sum{};
  table::Clock staleness = 0;
};
// Returns nothing for a scheme that has no update which takes all gradients of a clock.
std::optional<FactorTiming> factor_timing(const table::SchemeSpec& scheme);

// The way in which the gradients of one layer with params that learn travel.
struct LayerExchange {
  int layer = 0;
  Way way = Way::kTable;
  LayerSize size{};
  std::map<Way, Cost> costs{};  // by way; none where it cannot go so
  std::string why;              // "fewer numbers"
  const Cost& cost() const { return costs.at(way); }
};

// Chooses for the layers with params that learn, in their order. AUTO is the way that takes the
// fewest seconds, another than the table only if it takes a hundredth less; or, if the bandwidth is
// unknown, factors where they are fewer numbers than the table's. Throws ConfigError where the
// solver asks for a way that a layer cannot go; `name`, the prototxt's, stands in front. `codecs`:
// by layer, those of the table; empty: float32.
std::vector<LayerExchange> choose_exchanges(const Net& net, const SolverParameter& solver,
                                            const std::string& name, const table::Scheme& scheme,
                                            const JobSize& job, const Rates& rates = {},
                                            const std::vector<LayerCodecs>& codecs = {});
// Returns the rates that the solver says; others where it does not.
Rates rates_of(const SolverParameter& solver, const Rates& others = {});
// Returns whether AUTO is asked for somewhere, and a rate that it depends on is not given.
bool needs_rates(const SolverParameter& solver);

// Return, by layer of the net, its way, and whether each worker updates its params itself, by a
// collective.
std::vector<Way> ways_of(const Net& net, const std::vector<LayerExchange>& choices);
Layers replicated_by(const std::vector<Way>& ways);
Layers collective_by(const std::vector<Way>& ways);

// Layers whose gradients are one vector. The last number of the vector is the worker's weight, by
// which its gradients are multiplied.
struct Bucket {
  Way way = Way::kTree;
  std::vector<int> layers;  // highest first, as backward completes them
  std::size_t count = 0;    // numbers, the last one included
};
// Joins neighbours in the order of backward with the same collective way until their bytes are
// `enough`, so that a bucket's transfers are worth their latency. ways: by layer of the net.
std::vector<Bucket> buckets_of(const Net& net, const std::vector<Way>& ways, std::size_t enough);

// Returns one line for the log, "" where all travel by the table; and a table with a line a layer.
std::string summary_of(const Net& net, const std::vector<LayerExchange>& choices);
std::string table_of(const Net& net, const std::vector<LayerExchange>& choices, const Rates& rates);
// Returns a forecast. passes: of an iteration, or of all steps of a task. clips: as clips_all()
// says.
Forecast forecast_of(const Net& net, const std::vector<LayerExchange>& choices, const JobSize& job,
                     const Rates& rates, int passes, bool clips = false);
// Returns whether the solver limits the norm of all workers' gradients together. Otherwise, under
// schemes of deltas, each worker limits its own.
bool clips_all(const SolverParameter& solver, const std::string& name, const table::Scheme& scheme);

}  // namespace shoal::parallel
