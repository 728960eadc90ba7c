// The flag that limits the memory of nets.
#pragma once

#include <gflags/gflags.h>

#include "shoal/proto/solver.pb.h"

namespace shoal {

// Puts the MB of --memory_limit into the solver, if the flag is given. Throws ConfigError (kUsage)
// for a number below 0.
void set_memory_limit(SolverParameter& param);

}  // namespace shoal
