// A limit of bytes a second, for trials of slow networks. Time is given from outside.
#pragma once

#include <algorithm>
#include <cstddef>

#include "shoal/base/mutex.h"

namespace shoal::table {

// A bucket of tokens that may run into debt by one grant, so that the mean is exact whatever the
// sizes are. For any thread.
class Throttle {
 public:
  using Time = std::chrono::nanoseconds;
  explicit Throttle(double bytes_per_second)
      : rate_(bytes_per_second),
        most_(rate_ * kLongestBurst),
        largest_(static_cast<std::size_t>(std::clamp(most_, kSmallestGrant, kLargestGrant))),
        tokens_(most_) {}

  // How many of `wanted` bytes may go now; 0: ask again after `wait(now)`.
  std::size_t grant(std::size_t wanted, Time now) {
    MutexLock lock(mutex_);
    fill(now);
    if (tokens_ <= 0) return 0;
    const std::size_t granted = std::min(wanted, largest_);
    tokens_ -= static_cast<double>(granted);
    return granted;
  }
  Time wait(Time now) {
    MutexLock lock(mutex_);
    fill(now);
    return tokens_ > 0 ? Time{} : Time(static_cast<Time::rep>(-tokens_ / rate_ * 1e9) + 1000);
  }
  void give_back(std::size_t unused) {
    MutexLock lock(mutex_);
    tokens_ += static_cast<double>(unused);
  }

 private:
  void fill(Time now) REQUIRES(mutex_) {
    if (filled_ != Time{} && now > filled_)
      tokens_ =
          std::min(most_, tokens_ + rate_ * std::chrono::duration<double>(now - filled_).count());
    filled_ = std::max(filled_, now);
  }

  static constexpr double kLongestBurst = 0.002;  // seconds of the rate
  // So that links take turns, at low rates too: who waits, waits for what the others were granted.
  static constexpr double kSmallestGrant = 1024, kLargestGrant = 32 * 1024;
  const double rate_, most_;
  const std::size_t largest_;  // grant
  Mutex mutex_;
  double tokens_ GUARDED_BY(mutex_);
  Time filled_ GUARDED_BY(mutex_){};
};

struct Throttles {
  explicit Throttles(double rate) : sending(rate), receiving(rate) {}
  Throttle sending, receiving;
};

}  // namespace shoal::table
