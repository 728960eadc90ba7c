// The solver of a tool that trains, as flags say it, for the one file of it that includes this.
#pragma once

#include "common/net_flags.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"

DEFINE_string(solver, "", "the solver, a prototxt");

namespace shoal {

inline SolverParameter solver_of_flags(SnapshotPrefix prefix = SnapshotPrefix::kComplete) {
  SolverParameter param = read_solver(FLAGS_solver, prefix);
  NetState state;
  set_state_of_flags("", state);
  param.mutable_train_state()->MergeFrom(state);
  return param;
}

}  // namespace shoal
