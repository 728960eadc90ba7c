// The least time that a pass of a net can take on a device of known rates: by roofline, with each
// number read or written once by each layer that needs it.
#pragma once

#include <vector>

namespace shoal {

class Net;

struct DeviceRates {
  double flops = 0;  // a second; a multiply-add is two
  double bytes = 0;  // a second, to and from the device's memory
};

struct LeastTime {
  double forward = 0, backward = 0;  // seconds
};

// Returns by layer the longer of its arithmetic (convolutions and inner products; backward once for
// the params and once for the bottoms, where these are wanted) and of its traffic with memory:
// data, gradients and params, of four bytes. Layers without bottoms, splits' forward passes and
// layers whose work another does take none. What is not in it: launches, and everything that
// kernels read or write twice. Source: Williams et al., Roofline (CACM 2009).
std::vector<LeastTime> least_times(const Net& net, const DeviceRates& rates);

}  // namespace shoal
