// debug_info: the mean magnitude of every blob, in Caffe's words.
#pragma once

#include "shoal/net/net.h"

namespace shoal {

void log_forward(Net& net, int layer);  // after the layer's forward: its tops and params
// Called after the layer's backward: its bottoms' and params' gradients.
void log_backward(Net& net, int layer);
void log_params(Net& net);  // after a pass: norms over all params

}  // namespace shoal
