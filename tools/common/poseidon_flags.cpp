#include "common/poseidon_flags.h"

#include <gflags/gflags.h>

#include <string>
#include <utility>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/compat/flag_names.h"

#define SWITCH(name) DEFINE_bool(name, false, "Poseidon's; without effect here");
#define WORD(name) DEFINE_string(name, "", "Poseidon's; without effect here");
SHOAL_POSEIDON_FLAGS(SWITCH, WORD)

namespace shoal {
namespace {

// Returns the flags that were given and say something, as "--row_type".
std::vector<std::string> ignored_flags() {
#define NAME(name) #name,
  constexpr const char* kNames[] = {SHOAL_POSEIDON_FLAGS(NAME, NAME)};
  std::vector<std::string> given;
  for (const char* const name : kNames)
    if (const gflags::CommandLineFlagInfo flag = gflags::GetCommandLineFlagInfoOrDie(name);
        flag.current_value != flag.default_value)
      given.push_back(std::string("--") + name);
  return given;
}

}  // namespace

void report_ignored_flags() {
  constexpr std::pair<const char*, const char*> kLost[] = {
      {"--client_bandwidth_mbps", "nothing limits what a process sends; --throttle does"},
      {"--server_bandwidth_mbps", "nothing limits what a process sends; --throttle does"},
      {"--snapshot_clock", "snapshots are written as the solver's field snapshot says"},
      {"--snapshot_dir", "snapshots are written as the solver's field snapshot_prefix says"},
      {"--resume_clock", "nothing is resumed; --snapshot=FILE.solverstate or auto does"},
      {"--resume_dir", "nothing is resumed; --snapshot=FILE.solverstate or auto does"},
  };
  std::vector<std::string> flags = ignored_flags();
  for (const auto& [flag, lost] : kLost)
    if (std::erase(flags, flag) > 0) LOG(WARNING) << flag << " has no effect: " << lost;
  if (!flags.empty())
    LOG(INFO) << "These flags are accepted, but have no effect in Shoal: " << join(flags);
}

}  // namespace shoal
