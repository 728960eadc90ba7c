// SpeeDO's list of phases on the command line, --hybrid.
#pragma once

#include <gflags/gflags.h>

#include <string>
#include <vector>

#include "shoal/parallel/merge_scheme.h"
#include "shoal/proto/solver.pb.h"

DECLARE_string(hybrid);

namespace shoal {

// The phases of "=maxIter 100 =sync == =maxIter 200 =test 100", cut at blanks: a word that begins
// with "=" is an option, as with "--" on the command line; one of "=" alone begins the next phase.
// Each phase inherits `outer`, the scheme's other flags; one that names no strategy is
// asynchronous, with deltas unless it says gradientOnly. They replace the solver's schemes.
// max_iter, if `total` does not say that it was given, becomes nothing, so that each phase is
// trained once. Throws ConfigError (kUsage), with the number of the phase.
void merge_hybrid(const std::vector<std::string>& words, const parallel::SchemeFlags& outer,
                  bool total, SolverParameter& param);

}  // namespace shoal
