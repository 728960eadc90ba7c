// Flags of Poseidon that have no effect here: taken, so that its command lines run unchanged, and
// named once in the log.
#pragma once

#include <string>
#include <vector>

namespace shoal {

// Those that were given, as "--svb".
std::vector<std::string> ignored_flags();

}  // namespace shoal
