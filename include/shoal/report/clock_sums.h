// Adds up the clocks of a worker, so that what is kept of them grows with time and not with their
// number.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/report/metrics.h"

namespace shoal {

// The clocks of a part of a run: `sum` has the sums of their counts and seconds, and the number and
// time of the last.
struct ClockSums {
  ClockMetrics sum{.local_steps = 0};
  double clocks = 0;   // added up
  double seconds = 0;  // of the run
  void add(const ClockMetrics& clock);
  double each(double of_all) const { return of_all / clocks; }
};

class ClockWindow {
 public:
  explicit ClockWindow(double seconds) : least_(seconds) {}
  // Returns the sums of the clocks since those that it returned last, once they took long enough.
  std::optional<ClockSums> add(const ClockMetrics& clock);
  // Returns those that have not been returned, if any.
  std::optional<ClockSums> take();

 private:
  double least_, until_ = 0;
  std::optional<ClockSums> sums_;
};

// Returns the mean number that was counted, or nothing without an entry.
std::optional<double> mean_of(const Histogram& counts);

}  // namespace shoal
