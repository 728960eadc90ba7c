// Finds layers whose work a layer before them can do as well: a pure pass over the graph of a net.
#pragma once

#include <functional>
#include <vector>

#include "shoal/proto/net.pb.h"

namespace shoal {

// Two layers of a net by their indices: the work of `follower` can be done by `maker`, which makes
// the one blob that the follower works on in place.
struct Fusion {
  int maker = 0, follower = 0;
  bool operator==(const Fusion&) const = default;
};

// Returns the pairs of `with_splits`, the result of insert_splits, that `takes` accepts, in the
// order of the followers. A blob has one taker there, so nothing but the follower sees what the
// maker made, and the blob keeps its name. A maker may have several followers, one behind the
// other; no follower is in two pairs. The table in fuse.cpp says what a maker may be followed by.
// `takes` is asked once for each pair of it, in order (Layer::take_over has the say in a net). A
// follower that a maker does not take may be the maker for the layers behind it.
std::vector<Fusion> find_fusions(const NetParameter& with_splits,
                                 const std::function<bool(const Fusion&)>& takes);

}  // namespace shoal
