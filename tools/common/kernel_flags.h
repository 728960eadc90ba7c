// The flags that choose kernels by measured times and limit the memory of nets.
#pragma once

#include <gflags/gflags.h>

#include <memory>
#include <string>

#include "shoal/ops/tuning.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {

// Returns, with --tune, choices that are kept in the file of --kernels; without that flag, in that
// of this snapshot_prefix, where "" keeps them nowhere, and those beside `snapshot` count first.
// Returns null without --tune. Throws ConfigError, kUsage for --kernels alone.
std::shared_ptr<ops::ConvTuning> tuning_of_flags(const std::string& snapshot_prefix = "",
                                                 const std::string& snapshot = "");

// Puts the MB of --memory_limit into the solver, if the flag is given. Throws ConfigError (kUsage)
// for a number below 0.
void set_memory_limit(SolverParameter& param);

}  // namespace shoal
