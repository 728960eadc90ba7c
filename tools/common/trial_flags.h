// The flags of trials: they make a process of a job slower or ruder than it would be. No job needs
// them.
#pragma once

#include "shoal/table/table.h"

namespace shoal {

struct TrialFlags {
  double throttle = 0;         // bytes a second each way; 0: no limit
  double emulate_step_ms = 0;  // least time of an iteration; 0: computes as fast as it can
  table::Order order = table::Order::kPriority;
};

// Throws ConfigError (kUsage) for a value that makes no sense.
TrialFlags trial_flags();

}  // namespace shoal
