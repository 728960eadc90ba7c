#include "common/net_flags.h"

#include "common/machine.h"

DEFINE_int32(level, 0, "the net's level, for include and exclude rules");
DEFINE_string(stage, "", "a list with commas of the net's stages, for include and exclude rules");

namespace shoal {

void set_state_of_flags(const std::string& phase, NetState& state) {
  set_state(phase, FLAGS_level, FLAGS_stage, state);
}

}  // namespace shoal
