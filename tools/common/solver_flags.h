// The solver of a tool that trains: its file, and the flags that count instead of its fields.
#pragma once

#include <gflags/gflags.h>

#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"

DECLARE_string(solver);

namespace shoal {

// Reads the file of --solver and puts what other flags say in its place: --set and the flags of
// single fields. Throws ConfigError, which names the flag whose value is wrong.
SolverParameter solver_of_flags(SnapshotPrefix prefix = SnapshotPrefix::kComplete);
// Returns whether a flag says max_iter.
bool max_iter_is_given();

}  // namespace shoal
