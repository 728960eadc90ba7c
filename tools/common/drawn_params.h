// Random params for a net that is tried without being trained.
#pragma once

#include <cstdint>

#include "shoal/net/net.h"

namespace shoal {

// Overwrites all params: statistics, scales and shifts as a trained net may have them, and weights
// so that what each layer makes of random inputs has the deviation 1. The net is one with
// share_memory: false and fuse: false.
void draw_params(Net& net, std::uint64_t seed);

}  // namespace shoal
