#include "common/poseidon_flags.h"

#include <gflags/gflags.h>

#include "shoal/compat/flag_names.h"

#define SWITCH(name) DEFINE_bool(name, false, "Poseidon's; without effect here");
#define WORD(name) DEFINE_string(name, "", "Poseidon's; without effect here");
SHOAL_POSEIDON_FLAGS(SWITCH, WORD)

namespace shoal {

std::vector<std::string> ignored_flags() {
#define NAME(name) #name,
  constexpr const char* kNames[] = {SHOAL_POSEIDON_FLAGS(NAME, NAME)};
  std::vector<std::string> given;
  for (const char* const name : kNames)
    if (!gflags::GetCommandLineFlagInfoOrDie(name).is_default)
      given.push_back(std::string("--") + name);
  return given;
}

}  // namespace shoal
