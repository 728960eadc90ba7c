// Threads that compute in parallel but act on what they share one at a time, each when a scheduler
// resumes it. So the order of their actions is the scheduler's, however fast each thread computes.
#pragma once

#include <functional>
#include <thread>

#include "shoal/base/mutex.h"

namespace shoal::simulate {

// Limits how many threads compute at once. Results do not depend on the limit.
class ComputeSlots {
 public:
  explicit ComputeSlots(int count) : free_(count) {}
  void acquire();
  void release();

 private:
  Mutex mutex_;
  Condition changed_;
  int free_ GUARDED_BY(mutex_);
};

class SimThread {
 public:
  explicit SimThread(ComputeSlots& slots) : slots_(slots) {}
  SimThread(const SimThread&) = delete;

  // ---- the scheduler's side ----
  // Starts the thread, which runs `body`. It computes first.
  void start(std::function<void()> body);
  // Lets the thread act, and returns when it computes, suspends itself or ends. Does nothing if it
  // has ended.
  void resume();
  bool ended() const;

  // ---- the thread's side ----
  // Returns when the thread may act: at once if it may already.
  void enter();
  // From here on the thread computes.
  void leave();
  // Returns when the thread is resumed again.
  void suspend();
  bool acts() const { return acts_; }

 private:
  enum class State { kComputes, kReady, kActs, kEnded };
  void become(State state);
  void await_resume();
  void end();

  ComputeSlots& slots_;
  mutable Mutex mutex_;
  Condition changed_;
  State state_ GUARDED_BY(mutex_) = State::kComputes;
  bool acts_ = false;  // used by the thread alone
  std::jthread thread_;
};

}  // namespace shoal::simulate
