// Saves and restores what forward passes of a net change and updates do not: running sums and the
// states of sequences. So a pass can be made as if it had not been.
#pragma once

#include <vector>

#include "shoal/net/net.h"

namespace shoal {

class ForwardState {
 public:
  // Reads from the net's device. On the thread that runs the net.
  void save(Net& net);
  // Restores the state in the net that was saved last.
  void restore(const Net& net) const;

 private:
  std::vector<std::vector<float>> numbers_;  // of each tensor, in the net's order
};

}  // namespace shoal
