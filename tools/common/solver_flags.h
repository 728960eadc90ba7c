// The solver of a tool that trains, as flags say it.
#pragma once

#include <gflags/gflags.h>

#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"

DECLARE_string(solver);

namespace shoal {

SolverParameter solver_of_flags(SnapshotPrefix prefix = SnapshotPrefix::kComplete);

}  // namespace shoal
