// A limit of bytes a second, for trials of slow networks. Time is given from outside.
#pragma once

#include <chrono>
#include <cstddef>

#include "shoal/base/mutex.h"

namespace shoal::table {

// A bucket of tokens that may run into debt by one grant, so that the mean is exact whatever the
// sizes are. For any thread.
class Throttle {
 public:
  using Time = std::chrono::nanoseconds;
  explicit Throttle(double bytes_per_second);

  // How many of `wanted` bytes may go now; 0: ask again after `wait(now)`.
  std::size_t grant(std::size_t wanted, Time now);
  Time wait(Time now);
  void give_back(std::size_t unused);

 private:
  void fill(Time now) REQUIRES(mutex_);
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
