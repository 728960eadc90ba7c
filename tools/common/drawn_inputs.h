// Random numbers for the inputs of a net, of the kind that its layers take.
#pragma once

#include "shoal/base/random.h"
#include "shoal/net/net.h"

namespace shoal {

// Overwrites the numbers of an input: rows of Embed and BatchReindex are whole numbers below what
// they choose from, rois boxes within the features, selectors and marks where sequences begin 0 or
// 1 (0 at the first step), a Proposal's image sizes those of its features, and all others uniform
// between `low` and `high`.
void draw_input(const Net& net, Blob& input, float low, float high, Random& random);

}  // namespace shoal
