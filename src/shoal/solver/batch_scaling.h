// How a solver's rate grows with the items of an update.
#pragma once

#include <cstdint>
#include <string>

#include "shoal/optim/rate.h"

namespace shoal {

class SolverParameter;

// For updates of so many items; `written`: of a batch as the net is written. Throws ConfigError.
optim::RateScaling scaling_of(const SolverParameter& param, const std::string& name,
                              std::int64_t items, std::int64_t written);

}  // namespace shoal
