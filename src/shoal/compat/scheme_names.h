// Names that other systems have for schemes, as values of flags of theirs.
#pragma once

#include <string>

#include "shoal/base/error.h"

namespace shoal::compat {

// The type of scheme that Poseidon's --consistency_model or MXNet-G's --kv-store mean. An error
// (kUsage) says which values are known.
Result<std::string> scheme_meant(const std::string& flag, const std::string& value);

// The clocks of MXNet-G's --staleness, which admits one fewer than it says.
int clocks_of_mxnetg(int staleness);

}  // namespace shoal::compat
