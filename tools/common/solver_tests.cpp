#include "common/solver_tests.h"

#include "shoal/proto/solver.pb.h"

namespace shoal {
namespace {

void clear_tests(SolverParameter& solver) {
  solver.clear_test_interval();
  solver.clear_test_iter();
  solver.clear_test_net();
  solver.clear_test_net_param();
  solver.clear_test_state();
}

}  // namespace

void test_at_ends(SolverParameter& solver) {
  if (solver.test_iter_size() == 0 || solver.max_iter() < 1) return clear_tests(solver);
  solver.set_test_interval(solver.max_iter());
  solver.set_test_initialization(true);
}

}  // namespace shoal
