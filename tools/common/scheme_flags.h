// The flags of a tool that say the scheme of a job.
#pragma once

#include "shoal/parallel/merge_scheme.h"

namespace shoal {

class SolverParameter;

// Reads every parameter of fields.def, under its own name and under those that Poseidon, SpeeDO and
// ESync have for it. Throws ConfigError for two names that differ.
parallel::SchemeFlags scheme_flags();
// Returns the parameter that a flag of these gives ("moving_rate" of movingRate); "": there is no
// such flag.
std::string scheme_field_of(const std::string& flag);

// Divides SpeeDO's --maxIter, which is the job's, among its workers, where the scheme lets them
// share iterations. In lockstep an iteration is one of all of them.
void share_max_iter(int workers, SolverParameter& param);

}  // namespace shoal
