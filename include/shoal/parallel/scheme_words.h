// The schemes of a solver, one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shoal/table/scheme.h"

namespace shoal {
class SchemeParameter;
class SolverParameter;
}  // namespace shoal

namespace shoal::parallel {

// The search for a phase's groups, where the scheme's words do not give them: from speeds measured
// just before the phase.
struct GroupSearch {
  std::int64_t profile = 30;  // iterations of async in which they are measured
  std::size_t smallest = 1;   // workers in a group, at least
  // Iterations of the chief until groups are searched for again. 0: never; nothing: an epoch of the
  // data.
  std::optional<std::int64_t> interval{};
  bool operator==(const GroupSearch&) const = default;
};

struct Phase {
  std::int64_t end = 0;          // the iteration of the run at which it ends
  table::SchemeSpec scheme{};    // of a search without its groups
  std::string own{};             // "base_lr: 0.1": fields that replace the solver's
  std::uint32_t batch_size = 0;  // of the train net's data layers; 0: the net's
  // If given, the phase before it is the profile, in the scheme kProfile.
  std::optional<GroupSearch> search{};
  bool operator==(const Phase&) const = default;
};

// The scheme of a profile. Its workers do not wait for others, so that an iteration takes a
// worker's own time.
inline constexpr const char* kProfile = "async";

// Returns the profile before a phase whose groups are searched for, until iteration `end` at most.
Phase profile_of(const Phase& phase, std::int64_t end);
// Returns whether groups are searched for in one of the phases.
bool has_search(const std::vector<Phase>& phases);

// Returns the phases of a training, from the first iteration to max_iter (without one: once through
// the list). A solver without a scheme has bsp. Of several, each has its iterations; the list
// begins again after its last, and the last phase of the training ends early; the last in the list
// may have none, and then lasts to the end. Equal neighbours become one phase. Reads groups_file.
// Throws ConfigError, whose words begin with `name`.
std::vector<Phase> phases_of(const SolverParameter& param, const std::string& name);

// Returns the solver's parameters during the phase. Those of JobSpec have their nets in them, which
// a phase with a batch_size needs: without throws ConfigError.
SolverParameter with_phase(SolverParameter param, const Phase& phase);

// Returns one scheme, without its iterations and other properties of a phase. Throws as phases_of
// does.
table::SchemeSpec spec_of(const SchemeParameter& scheme, const std::string& name);

// Returns the word of a type in lower case: prototxts may write "SSP".
std::string in_lower_case(std::string word);

}  // namespace shoal::parallel
