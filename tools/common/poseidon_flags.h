// Flags of Poseidon that have no effect here: taken, so that its command lines run unchanged, and
// named once in the log.
#pragma once

namespace shoal {

// Logs those that were given: a WARNING with what is lost for each that changes what is sent or
// saved, and a line with the others, which only tune.
void report_ignored_flags();

}  // namespace shoal
