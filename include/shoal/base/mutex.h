// A mutex, its guard and a condition with a deadline, annotated for clang's -Wthread-safety. All
// modules use these locks and no others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SHOAL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SHOAL_THREAD_ANNOTATION(x)
#endif
#define GUARDED_BY(m) SHOAL_THREAD_ANNOTATION(guarded_by(m))
#define REQUIRES(m) SHOAL_THREAD_ANNOTATION(requires_capability(m))
#define EXCLUDES(m) SHOAL_THREAD_ANNOTATION(locks_excluded(m))

namespace shoal {

class SHOAL_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() SHOAL_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() SHOAL_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

class SHOAL_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SHOAL_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() SHOAL_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits for something that a mutex guards. Every wait has a deadline.
class Condition {
 public:
  // Returns what `done()` last said: true before the deadline, or false at it. The mutex is held on
  // entry and on return.
  template <class Done>
  bool wait_for(Mutex& mutex, std::chrono::milliseconds deadline, Done done)
      SHOAL_THREAD_ANNOTATION(no_thread_safety_analysis) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool result = condition_.wait_for(lock, deadline, done);
    lock.release();
    return result;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace shoal
