// Questions about the phases of a run, which stand in their order.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/parallel/scheme_words.h"

namespace shoal::parallel {

// Without others, schemes make no difference.
std::vector<Phase> alone(std::vector<Phase> phases);
// The same for a run that begins in phase `at` and knows nothing of before: if groups are searched
// for, in a profile of its own until `end`.
std::vector<Phase> with_profile(std::vector<Phase> phases, std::size_t at, std::int64_t end);
bool has_search(const std::vector<Phase>& phases);
// Whether its workers share their iterations.
bool shares_iterations(const Phase& phase);
// How far workers with these iterations are in this phase, which ends for all at once. Where each
// goes on from its own iteration (then there is one for each of the workers), the slowest counts,
// or what all have done.
std::int64_t come_to(const Phase& phase, const std::vector<std::int64_t>& iterations, int workers);
// The phase of iteration `from`, which is `at` or later.
std::size_t phase_at(const std::vector<Phase>& phases, std::size_t at, std::int64_t from);

}  // namespace shoal::parallel
