// Puts the scheme that flags give into the solver.
#pragma once

#include <string>
#include <vector>

namespace shoal {
class SolverParameter;
}  // namespace shoal

namespace shoal::parallel {

// The value that a flag gives to a parameter of fields.def.
struct SchemeFlag {
  std::string name;   // "movingRate"
  std::string field;  // "moving_rate"
  std::string value;
};

struct SchemeFlags {
  std::string scheme{}, consistency_model{}, kv_store{};
  bool sync = false, gradient_only = false;  // SpeeDO's
  std::vector<SchemeFlag> fields{};
};

// Merges flags into the solver's scheme. One that names another type replaces it, whole; others
// replace its fields. Without a type on either side the fields imply it, as fields.def says. Throws
// ConfigError (kUsage) for flags that contradict each other, by both names, and for values that the
// field cannot hold. Combinations that make no sense are left to phases_of.
void merge_scheme(const SchemeFlags& flags, SolverParameter& param);

}  // namespace shoal::parallel
