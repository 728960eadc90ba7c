// Threads of a test that wait for each other to have come so far.
#pragma once

#include <algorithm>
#include <chrono>

#include "shoal/base/mutex.h"

namespace shoal::test {

class Gate {
 public:
  void reach(int at) {
    const MutexLock lock(mutex_);
    at_ = std::max(at_, at);
    changed_.notify_all();
  }
  // False after a minute.
  bool wait(int at) {
    const MutexLock lock(mutex_);
    return changed_.wait_for(mutex_, std::chrono::seconds(60),
                             [&]() REQUIRES(mutex_) { return at_ >= at; });
  }

 private:
  Mutex mutex_;
  Condition changed_;
  int at_ GUARDED_BY(mutex_) = 0;
};

}  // namespace shoal::test
