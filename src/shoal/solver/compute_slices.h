// Divides the time of an iteration among the layers of a net, and among the slices of computation
// between those calls of an updater that may wait or send.
#pragma once

#include <vector>

namespace shoal {

class Net;

// Each layer's parts of the time of a forward and backward pass; their sum is 1.
struct LayerShares {
  std::vector<double> forward, backward;  // by layer
};

// Estimates the shares by the multiply-adds that the layers do.
LayerShares estimated_shares(const Net& net);
// Divides all shares by their sum. If that is 0, the last layer's forward pass gets all.
void normalize(LayerShares& shares);

// The parts of an iteration's time that pass after begin(), and after before_forward() and
// after_backward() of the layers that have params. Layers without params belong to the slice of the
// layer computed before them.
struct ComputeSlices {
  double begin = 0;
  std::vector<double> forward, backward;  // by layer
  std::vector<bool> has_params;           // by layer
};

// Returns the slices. An iteration is the first pass's forward half, the passes between, and the
// last pass's backward half. Without `overlap` all of it is in one slice after the last
// before_forward().
ComputeSlices slices_of(const Net& net, const LayerShares& shares, int iter_size, bool overlap);

}  // namespace shoal
