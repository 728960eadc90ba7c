// Scales a solver's rate with the items of an update.
#pragma once

#include <cstdint>
#include <string>

#include "shoal/optim/rate.h"

namespace shoal {

class SolverParameter;

// Returns the scaling for updates of so many items. `written`: the items of a batch as the net is
// written. Throws ConfigError.
optim::RateScaling scaling_of(const SolverParameter& param, const std::string& name,
                              std::int64_t items, std::int64_t written);

}  // namespace shoal
