// Turns a net to train and test into the plain one that other programs run: OpenCV's
// readNetFromCaffe, BVLC's classification tools.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

class NetParameter;

// Says how to write pooling that rounds down (round_mode: FLOOR), for which Caffe and OpenCV have
// different fields.
enum class FloorField { kCeilMode, kRoundMode, kRefuse };  // OpenCV's, Caffe's, or a ConfigError

struct DeployOptions {
  // The shape of inputs whose size no field tells, batch first; empty: that is a ConfigError.
  std::vector<std::int64_t> shape{};
  // The batch of every input; 0: one for what was a data layer, Input layers as they are.
  std::int64_t batch = 0;
  // Include and exclude rules are compared with these and phase TEST.
  int level = 0;
  std::vector<std::string> stages{};
  bool auxiliary = false;  // keep heads whose loss counts less than the largest
};

// Returns the layers of `net` (as the readers return it) in phase TEST, without rules, rates,
// fillers, numbers and fields of ours:
// - data layers: Input; the size comes from crop_size, new_height and mean files, colour fields and
//   means, or `shape`
// - SoftmaxWithLoss, InfogainLoss: Softmax with top "prob", unless the net has one of that bottom
// - SigmoidCrossEntropyLoss: Sigmoid, likewise
// - other losses: the bottoms that layers which learn lead to
// - tops that no layer takes, or that Accuracy, Silence or HDF5Output alone take: kept
// - Accuracy, Silence, a loss with the label of another that weighs more, and what leads to these
//   alone: left out
// Throws ConfigError if the size of an input is unknown, if a layer's bottom is made in another
// phase or stage alone, for a misspelt stage, or if nothing is left.
NetParameter deploy_net(const NetParameter& net, const DeployOptions& options);

// Returns the text of such a net. Throws ConfigError for pooling that rounds down if `floor` says
// so.
std::string deploy_text(const NetParameter& net, FloorField floor);

}  // namespace shoal
