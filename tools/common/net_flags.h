// The state that include and exclude rules of a net test, as flags.
#pragma once

#include <gflags/gflags.h>

#include <string>

#include "shoal/proto/net.pb.h"

DECLARE_int32(level);
DECLARE_string(stage);

namespace shoal {

void set_state_of_flags(const std::string& phase, NetState& state);

}  // namespace shoal
