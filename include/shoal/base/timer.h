// Seconds as a number, and a wait for a point in time. Work that waits for an event waits on a
// Condition instead (mutex.h).
#pragma once

#include <chrono>

namespace shoal {

inline double to_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// Returns at `deadline`, or at once if that has passed. For emulated computation and benchmarks.
void wait_until(std::chrono::steady_clock::time_point deadline);

}  // namespace shoal
