// Receives the displayed and tested values that are also logged.
#pragma once

#include <cstdint>
#include <vector>

namespace shoal {

struct Measured {
  std::int64_t iteration = 0;
  double seconds = 0;  // since solve() or the solver began
  double loss = 0;
  std::vector<double> outputs{};  // one a number of each output of the net, in order
  double rate = 0;                // of learning, of a display
};

// Receives values on the solver's thread. In a team only the chief's is called, with means over all
// members, those of displays weighted by their items. A display is reported when the slowest member
// has reached it, so perhaps some iterations later.
class Observer {
 public:
  virtual ~Observer() = default;
  // Receives the smoothed loss, and the outputs times their weight in the loss, if they have one.
  virtual void displayed(const Measured& row) = 0;
  // Receives the means of a test of test net `net`, with its outputs as they are.
  virtual void tested(int net, const Measured& row) = 0;
};

}  // namespace shoal
