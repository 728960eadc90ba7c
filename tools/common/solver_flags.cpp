#include "common/solver_flags.h"

#include "common/net_flags.h"

DEFINE_string(solver, "", "the solver, a prototxt");

namespace shoal {

SolverParameter solver_of_flags(SnapshotPrefix prefix) {
  SolverParameter param = read_solver(FLAGS_solver, prefix);
  NetState state;
  set_state_of_flags("", state);
  param.mutable_train_state()->MergeFrom(state);
  return param;
}

}  // namespace shoal
