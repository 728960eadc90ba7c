// The state that include and exclude rules of a net test, as flags.
#pragma once

#include <gflags/gflags.h>

#include <string>

#include "shoal/net/net.h"
#include "shoal/proto/net.pb.h"

DECLARE_int32(level);
DECLARE_string(stage);

namespace shoal {

void set_state_of_flags(const std::string& phase, NetState& state);
// Copies the params of the files, a list with commas, into a net that is to be used as it is: warns
// of layers that no file has, whose params are what their fillers made. Throws ConfigError.
void load_weights(const std::string& files, Net& net);

}  // namespace shoal
