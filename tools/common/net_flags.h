// The state that include and exclude rules of a net test, as flags, for the one file of a tool that
// includes this.
#pragma once

#include <gflags/gflags.h>

#include "common/machine.h"
#include "shoal/proto/net.pb.h"

DEFINE_int32(level, 0, "the net's level, for include and exclude rules");
DEFINE_string(stage, "", "a list with commas of the net's stages, for include and exclude rules");

namespace shoal {

inline void set_state_of_flags(const std::string& phase, NetState& state) {
  set_state(phase, FLAGS_level, FLAGS_stage, state);
}

}  // namespace shoal
