// Waits for a point in time.
#include "shoal/base/timer.h"

#include <thread>

namespace shoal {

void wait_until(std::chrono::steady_clock::time_point deadline) {
  std::this_thread::sleep_until(deadline);
}

}  // namespace shoal
