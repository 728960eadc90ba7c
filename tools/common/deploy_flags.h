// Flags of tools that run a net as it is deployed.
#pragma once

#include <cstdint>

#include "shoal/net/deploy.h"

namespace shoal {

// Returns what --shape, --level, --stage and --auxiliary say. Throws ConfigError (kUsage) for a
// shape that is none.
DeployOptions deploy_options_of_flags(std::int64_t batch);

}  // namespace shoal
