// Layers whose shapes differ from pass to pass, because a layer sizes its tops by numbers
// (Layer::sizes_tops).
#pragma once

#include <set>
#include <vector>

#include "shoal/net/net.h"

namespace shoal {

struct Varying {
  std::vector<bool> layers;     // which size their tops, or have a bottom that varies
  std::set<const Blob*> blobs;  // which have another shape in a pass that selects no items
};

// Reshapes the layers of a net that was just built, as if nothing were selected, and back. Throws
// ConfigError.
Varying find_varying(Net& net);

// Returns whether a layer that varies has numbers to work on in this pass.
bool has_work(const Net& net, int layer);

}  // namespace shoal
