// The stages of a run, in order: the scheme of each, and where it ends.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/parallel/scheme_words.h"

namespace shoal::parallel {

// A phase, and the iteration at which it ends.
struct Stage : Phase {
  std::int64_t end = 0;
};

// One at least, the last to the end of the run.
std::vector<Stage> stages_of(const std::vector<Phase>& phases);
// Without others, schemes make no difference.
std::vector<Stage> alone(std::vector<Stage> stages);
// The same for a run that begins in stage `at` and knows nothing of before: if groups are searched
// for, in a profile of its own until `end`.
std::vector<Stage> with_profile(std::vector<Stage> stages, std::size_t at, std::int64_t end);
bool has_search(const std::vector<Stage>& stages);
// Whether its workers share their iterations.
bool shares_iterations(const Stage& stage);
// How far workers with these iterations are in this stage, which ends for all at once. Where each
// goes on from its own iteration (then there is one for each of the workers), the slowest counts,
// or what all have done.
std::int64_t come_to(const Stage& stage, const std::vector<std::int64_t>& iterations, int workers);
// The stage of iteration `from`, which is `at` or later.
std::size_t stage_at(const std::vector<Stage>& stages, std::size_t at, std::int64_t from);

}  // namespace shoal::parallel
