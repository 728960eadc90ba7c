// Chooses, for each layer of a net, the way in which its gradients travel between workers. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shoal/layers/factored.h"
#include "shoal/solver/exchange.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {

// When and how factors become updates under a scheme: those of a clock are one update, with the sum
// that this scheme in lockstep takes, before the iteration that many clocks later.
struct FactorTiming {
  std::string sum = "bsp";
  table::Clock staleness = 0;
};
// Nothing for a scheme that has no update which takes all gradients of a clock.
std::optional<FactorTiming> factor_timing(const table::SchemeSpec& scheme);

struct Crowd {
  std::int64_t workers = 1, servers = 1;
  int replicas = 1;  // nets of a worker
};
// The numbers that a process with a worker and a server sends and receives for one layer in an
// iteration. Source: Poseidon's HybComm (Zhang et al., ATC 2017).
double table_traffic(std::int64_t params, const Crowd& crowd);
// sizes.rows: of all passes of an iteration.
double factor_traffic(const Factored::Sizes& sizes, const Crowd& crowd);
// Whether factors are no more than a weight (outputs, inputs) of the table's, biases apart. A tie
// goes to factors.
bool factors_are_fewer(const Factored::Sizes& sizes, const Crowd& crowd);

// How the gradients of one layer with params that learn travel.
struct LayerExchange {
  int layer = 0;
  bool by_factors = false;
  double table = 0, factors = 0;  // numbers an iteration; factors: 0 where there are none
  std::string why;                // "fewer numbers than the table's"
};

// For the layers with params that learn, in their order. Throws ConfigError where the solver asks
// for what cannot be; `name`, the prototxt's, stands in front.
std::vector<LayerExchange> choose_exchanges(const Net& net, const SolverParameter& solver,
                                            const std::string& name, const table::Scheme& scheme,
                                            const Crowd& crowd);
// By layer of the net: whether its gradients travel as factors.
Layers by_factors(const Net& net, const std::vector<LayerExchange>& choices);
// One line for the log, "" where all travel by the table; and a table with a line a layer.
std::string summary_of(const Net& net, const std::vector<LayerExchange>& choices);
std::string table_of(const Net& net, const std::vector<LayerExchange>& choices);

}  // namespace shoal::parallel
