// The flags by which a run is watched while it trains; docs/watching.md explains them.
#pragma once

#include "common/watch.h"

namespace shoal {

// Throws ConfigError (kUsage) for flags that are wrong alone or together.
WatchOptions watch_of_flags(const JobFlags& flags);

}  // namespace shoal
