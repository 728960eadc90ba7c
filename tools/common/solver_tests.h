// Changes when a solver tests.
#pragma once

namespace shoal {

class SolverParameter;

// Lets the solver test before the first iteration and after the last alone, as SpeeDO's --test 0
// does; or not at all, if it has no batches to test with.
void test_at_ends(SolverParameter& solver);

}  // namespace shoal
