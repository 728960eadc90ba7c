// Threads that compute in parallel but act on what they share one at a time, each when a scheduler
// resumes it. So the order of their actions is the scheduler's, however fast each thread computes.
#pragma once

#include <functional>
#include <thread>

#include "shoal/base/log.h"
#include "shoal/base/mutex.h"

namespace shoal::simulate {

// Waits without a deadline, since a computation may take any time, but logs that it waits.
template <class Done>
void wait_for(const char* what, Condition& changed, Mutex& mutex, Done done) {
  constexpr std::chrono::minutes kPatience{5};
  while (!changed.wait_for(mutex, kPatience, done))
    LOG(WARNING) << "the simulation has waited " << kPatience.count() << " minutes for " << what;
}

// Limits how many threads compute at once. Results do not depend on the limit.
class ComputeSlots {
 public:
  explicit ComputeSlots(int count) : free_(count) {}
  void acquire() {
    const MutexLock lock(mutex_);
    wait_for("a worker's computation", changed_, mutex_, [this] { return free_ > 0; });
    --free_;
  }
  void release() {
    const MutexLock lock(mutex_);
    ++free_;
    changed_.notify_one();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  int free_ GUARDED_BY(mutex_);
};

class SimThread {
 public:
  explicit SimThread(ComputeSlots& slots) : slots_(slots) {}

  // ---- the scheduler's side ----
  // Starts the thread, which runs `body`. It computes first.
  void start(std::function<void()> body) {
    thread_ = std::jthread([this, body = std::move(body)] {
      slots_.acquire();
      body();
      enter();
      become(State::kEnded);
    });
  }
  // Lets the thread act, and returns when it computes, suspends itself or ends. Does nothing if it
  // has ended.
  void resume() {
    const MutexLock lock(mutex_);
    wait_for("a worker's computation", changed_, mutex_,
             [this] { return state_ == State::kReady || state_ == State::kEnded; });
    if (state_ == State::kEnded) return;
    state_ = State::kActs;
    changed_.notify_all();
    wait_for("a worker's action", changed_, mutex_, [this] { return state_ != State::kActs; });
  }
  bool ended() const {
    const MutexLock lock(mutex_);
    return state_ == State::kEnded;
  }

  // ---- the thread's side ----
  // Returns when the thread may act: at once if it may already.
  void enter() {
    if (acts_) return;
    slots_.release();
    become(State::kReady);
    acts_ = true;
  }
  // Leaves: from here on the thread computes.
  void leave() {
    CHECK(acts_) << "the thread computes already";
    acts_ = false;
    become(State::kComputes);
    slots_.acquire();
  }
  // Returns when the thread is resumed again.
  void suspend() {
    CHECK(acts_) << "only a thread that acts can be suspended";
    become(State::kReady);
  }
  bool acts() const { return acts_; }

 private:
  enum class State { kComputes, kReady, kActs, kEnded };
  // Called by the thread. A thread that is ready returns when it may act.
  void become(State state) {
    const MutexLock lock(mutex_);
    state_ = state;
    changed_.notify_all();
    if (state == State::kReady)
      wait_for("the scheduler", changed_, mutex_, [this] { return state_ == State::kActs; });
  }

  ComputeSlots& slots_;
  mutable Mutex mutex_;
  Condition changed_;
  State state_ GUARDED_BY(mutex_) = State::kComputes;
  bool acts_ = false;  // used by the thread alone
  std::jthread thread_;
};

}  // namespace shoal::simulate
