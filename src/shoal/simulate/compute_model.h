// Divides a worker's computing time among the layers of a net.
#pragma once

#include "shoal/simulate/cluster.h"
#include "shoal/solver/compute_slices.h"

namespace shoal::simulate {

// Returns the shares as `compute` measured them, or estimated ones if it did not. Throws
// ConfigError if it measured another net.
LayerShares shares_of(const Net& net, const Compute& compute);

}  // namespace shoal::simulate
