#include "shoal/simulate/sim_thread.h"

#include <chrono>
#include <utility>

#include "shoal/base/log.h"

namespace shoal::simulate {
namespace {

// Waits without a deadline, since a computation may take any time, but logs that it waits.
template <class Done>
void wait(Condition& changed, Mutex& mutex, const char* what, Done done) {
  constexpr std::chrono::minutes kPatience{5};
  while (!changed.wait_for(mutex, kPatience, done))
    LOG(WARNING) << "the simulation has waited " << kPatience.count() << " minutes for " << what;
}

}  // namespace

void ComputeSlots::acquire() {
  const MutexLock lock(mutex_);
  wait(changed_, mutex_, "a worker's computation", [this] { return free_ > 0; });
  --free_;
}

void ComputeSlots::release() {
  const MutexLock lock(mutex_);
  ++free_;
  changed_.notify_one();
}

void SimThread::start(std::function<void()> body) {
  thread_ = std::jthread([this, body = std::move(body)] {
    slots_.acquire();
    body();
    end();
  });
}

void SimThread::become(State state) {
  const MutexLock lock(mutex_);
  state_ = state;
  changed_.notify_all();
}

void SimThread::resume() {
  const MutexLock lock(mutex_);
  wait(changed_, mutex_, "a worker's computation",
       [this] { return state_ == State::kReady || state_ == State::kEnded; });
  if (state_ == State::kEnded) return;
  state_ = State::kActs;
  changed_.notify_all();
  wait(changed_, mutex_, "a worker's action", [this] { return state_ != State::kActs; });
}

bool SimThread::ended() const {
  const MutexLock lock(mutex_);
  return state_ == State::kEnded;
}

void SimThread::await_resume() {
  const MutexLock lock(mutex_);
  state_ = State::kReady;
  changed_.notify_all();
  wait(changed_, mutex_, "the scheduler", [this] { return state_ == State::kActs; });
}

void SimThread::enter() {
  if (acts_) return;
  slots_.release();
  await_resume();
  acts_ = true;
}

void SimThread::leave() {
  CHECK(acts_) << "the thread computes already";
  acts_ = false;
  become(State::kComputes);
  slots_.acquire();
}

void SimThread::suspend() {
  CHECK(acts_) << "only a thread that acts can be suspended";
  await_resume();
}

void SimThread::end() {
  if (!acts_) slots_.release();
  acts_ = false;
  become(State::kEnded);
}

}  // namespace shoal::simulate
