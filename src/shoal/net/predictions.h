// Finds what a net to train is there to compute: its predictions, without losses and measures.
#pragma once

#include <set>
#include <string>

#include "shoal/proto/net.pb.h"

namespace shoal {

struct Predictions {
  NetParameter net;              // without losses, measures and sinks; with heads
  std::set<std::string> wanted;  // the blobs that a deploy net is there to compute
};

// Returns whether the layer brings records: it has no bottoms, and a deploy net has an Input there.
bool is_data(const LayerParameter& layer);

// Returns the layers of `tested`, which is `net` filtered for phase TEST, and the predictions:
// - of each loss, and of each layer with a loss_weight, the bottoms that layers which learn lead
//   to, before labels are mixed in; a SoftmaxWithLoss, InfogainLoss or SigmoidCrossEntropyLoss
//   becomes a Softmax or Sigmoid ("prob"), unless the net has it; losses of phase TRAIN alone
//   count too, where the blobs that they take are made in TEST
// - tops that no layer takes, but those that come from labels alone
// - what layers that learn lead to, and only Accuracy, Silence or HDF5Output take
// Unless `auxiliary`, a loss counts for nothing if another with the same label has more weight.
Predictions find_predictions(const NetParameter& tested, const NetParameter& net, bool auxiliary);

}  // namespace shoal
