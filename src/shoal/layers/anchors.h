// The boxes beside which a region proposal network places its own.
#pragma once

#include <vector>

#include "shoal/layers/boxes.h"

namespace shoal {

class ProposalParameter;

// Returns the A anchors at the first place of the features, ratios outermost, as py-faster-rcnn and
// PVANet's fork make them: sides are rounded before they are scaled.
std::vector<Box> anchors_of(const ProposalParameter& param);

}  // namespace shoal
