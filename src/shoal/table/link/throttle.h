// Limits bytes a second, for trials of slow networks. Time is passed in by the caller.
#pragma once

#include <algorithm>
#include <cstddef>

#include "shoal/base/mutex.h"
#include "shoal/base/timer.h"

namespace shoal::table {

// Keeps a debt of time: bytes may be moved while there is none, and moved bytes add to it. So the
// mean is exact whatever the sizes are. For any thread.
class Throttle {
 public:
  using Time = std::chrono::nanoseconds;
  explicit Throttle(double bytes_per_second) : rate_(bytes_per_second) {}

  // Returns how many bytes may be moved at once: few enough that links take turns, at low rates
  // too. A link that waits, waits for the bytes that the others moved.
  std::size_t most() const {
    constexpr double kLeast = 1024, kMost = 32 * 1024;
    return static_cast<std::size_t>(std::clamp(rate_ * to_seconds(kLongestBurst), kLeast, kMost));
  }
  // Returns how long to wait; zero: bytes may be moved now.
  Time wait(Time now) const {
    MutexLock lock(mutex_);
    return std::max(Time{}, paid_ - now);
  }
  void moved(std::size_t bytes, Time now) {
    MutexLock lock(mutex_);
    paid_ = std::max(paid_, now - kLongestBurst) +
            Time(static_cast<Time::rep>(static_cast<double>(bytes) / rate_ * 1e9));
  }

 private:
  static constexpr Time kLongestBurst = std::chrono::milliseconds(2);
  const double rate_;
  mutable Mutex mutex_;
  Time paid_ GUARDED_BY(mutex_){};  // when there is no debt any more
};

struct Throttles {
  explicit Throttles(double rate) : sending(rate), receiving(rate) {}
  Throttle sending, receiving;
};

}  // namespace shoal::table
