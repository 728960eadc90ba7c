// Trains several nets of one process as one: they have the same params, and each reads its own part
// of the data, on a thread and a device of its own. On the CPU they share the params' memory.
//
// In each iteration their gradients are summed in the order of replicas and divided by their
// number, layer by layer, as soon as the slowest has finished the layer's backward. What follows,
// the rule here or a push to a table, gets one gradient. Factors of a layer go to the first net's
// sink. Running means and the like, which a forward pass changes and no rule, are averaged after
// each update. The same inputs give the same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shoal/solver/updater.h"

namespace shoal {
class Device;
class SolverParameter;
}  // namespace shoal

namespace shoal::parallel {

// Wraps `inner`, which updates `first`, the solver's train net: that is replica 0 of
// first.context().share().replicas. Builds the others, each on its device (empty: all on the
// first's), with as many kernel threads and the same seed. Their states are in the solver's
// snapshots. An error of any of them ends the iteration with it. Throws ConfigError as the solver
// does.
std::unique_ptr<Updater> make_replicas(const SolverParameter& param, const std::string& name,
                                       Net& first, const std::vector<const Device*>& devices,
                                       std::unique_ptr<Updater> inner);

}  // namespace shoal::parallel
