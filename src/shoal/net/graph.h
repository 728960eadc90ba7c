// Pure functions on the graph of a net: which layers are built, and where blobs are split.
#pragma once

#include <string>

#include "shoal/proto/net.pb.h"

namespace shoal {

// Returns whether `rule` matches `state`: phase equal where set, level within its bounds, every
// `stage` present, no `not_stage` present.
bool rule_matches(const NetStateRule& rule, const NetState& state);

// Returns the layers of `net` that belong to its state, each with its phase filled in: the state's,
// or that of a layer whose prototxt gives it one. A net in which each layer has the same phase was
// written by a program, and they count for nothing. Throws ConfigError for a layer with both
// include and exclude rules.
NetParameter filter_net(const NetParameter& net);

// "stage 'dumy' is in no rule of net 'x'; did you mean 'dummy'?", of the first stage of the net's
// state that no rule names and that looks like one of theirs; "" if there is none.
std::string misspelt_stage(const NetParameter& net);

// `net` with a Split layer after each blob that several bottoms use, or one bottom and the loss.
// The first use of a blob that also carries a loss weight is the split's first top, which keeps
// that weight. Names are Caffe's:
//   layer <blob>_<layer>_<top>_split, tops the same with _<k>.
// Throws ConfigError for a bottom that no earlier layer makes, with the nearest known blob, or the
// layer of `whole`, of which `net` is filtered, that makes it in another state.
NetParameter insert_splits(const NetParameter& net, const NetParameter& whole = {});
// Returns whether insert_splits made the layer.
bool is_inserted_split(const LayerParameter& layer);

}  // namespace shoal
