// Counts what all workers of a simulated job have computed.
#pragma once

#include <cstdint>

namespace shoal::simulate {

struct Tally {
  double samples = 0;
  std::int64_t iterations = 0;
  double losses = 0;         // the sum of the losses since the last point
  std::int64_t counted = 0;  // how many losses that are
};

}  // namespace shoal::simulate
