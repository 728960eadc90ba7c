// A solver's schemes, one after the other.
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

// How a phase's groups are found where the scheme's words do not give them: from speeds measured
// just before.
struct GroupSearch {
  std::int64_t profile = 30;  // iterations of async in which they are measured
  std::size_t smallest = 1;   // workers in a group, at least
  // iterations of the chief until they are looked at again; 0: never; nothing: an epoch of the data
  std::optional<std::int64_t> interval{};
  bool operator==(const GroupSearch&) const = default;
};

struct Phase {
  std::int64_t end = 0;          // the iteration of the run at which it ends
  table::SchemeSpec scheme{};    // of a search without its groups
  std::string own{};             // "base_lr: 0.1": fields that replace the solver's
  std::uint32_t batch_size = 0;  // of the train net's data layers; 0: the net's
  // the phase before it is the profile, in the scheme kProfile
  std::optional<GroupSearch> search{};
  bool operator==(const Phase&) const = default;
};

// there no worker waits for others, so that what an iteration takes is the worker's own
inline constexpr const char* kProfile = "async";

// The profile before a phase whose groups are searched for, until iteration `end` at most.
Phase profile_of(const Phase& phase, std::int64_t end);
// Whether groups are searched for in one of them.
bool has_search(const std::vector<Phase>& phases);

// The phases of a training, from the first iteration to max_iter (without one: once through
// the list). A solver without a scheme has bsp. Of several, each has its iterations; the list
// begins again when it is through, and its last phase ends early; the last in the list may have
// none, and then lasts to the end. Neighbours that are the same are one phase. Reads groups_file.
// Throws ConfigError, whose words begin with `name`.
std::vector<Phase> phases_of(const SolverParameter& param, const std::string& name);

// Returns the solver's parameters during the phase. Those of JobSpec have their nets in them, which
// a phase with a batch_size needs: without throws ConfigError.
SolverParameter with_phase(SolverParameter param, const Phase& phase);

// One scheme, without its iterations and what else a phase has of its own. Throws likewise.
table::SchemeSpec spec_of(const SchemeParameter& scheme, const std::string& name);

// Of a type, which prototxts may write "SSP".
std::string in_lower_case(std::string word);

}  // namespace shoal::parallel
