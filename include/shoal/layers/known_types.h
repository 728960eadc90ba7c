// Tells of layer types that are not built whose they are.
#pragma once

#include <string>

namespace shoal {

class NetParameter;

// Says why `type` is none of layer_types(): the fork that has it, the nearest known type, or the
// list of all.
std::string why_unknown(const std::string& type);

// Throws ConfigError, with a line for each type that is not known, at the first layer that has it,
// where make_layer would name the first alone.
void check_layer_types(const NetParameter& net);

}  // namespace shoal
