#include "shoal/simulate/stage.h"

#include <chrono>

#include "shoal/base/log.h"

namespace shoal::simulate {
namespace {

// Whoever is waited for computes, or is about to: there is no deadline for that, but a word.
template <class Done>
void wait(Condition& changed, Mutex& mutex, const char* what, Done done) {
  constexpr std::chrono::minutes kPatience{5};
  while (!changed.wait_for(mutex, kPatience, done))
    LOG(WARNING) << "has waited for " << kPatience.count() << " minutes for " << what;
}

}  // namespace

void Desks::take() {
  const MutexLock lock(mutex_);
  wait(changed_, mutex_, "a worker's computation", [this] { return free_ > 0; });
  --free_;
}

void Desks::give() {
  const MutexLock lock(mutex_);
  ++free_;
  changed_.notify_one();
}

void Actor::become(State state) {
  const MutexLock lock(mutex_);
  state_ = state;
  changed_.notify_all();
}

void Actor::turn() {
  const MutexLock lock(mutex_);
  wait(changed_, mutex_, "a worker's computation",
       [this] { return state_ == State::kWaiting || state_ == State::kEnded; });
  if (state_ == State::kEnded) return;
  state_ = State::kInside;
  changed_.notify_all();
  wait(changed_, mutex_, "a worker to end its turn", [this] { return state_ != State::kInside; });
}

bool Actor::ended() const {
  const MutexLock lock(mutex_);
  return state_ == State::kEnded;
}

void Actor::await_turn() {
  const MutexLock lock(mutex_);
  state_ = State::kWaiting;
  changed_.notify_all();
  wait(changed_, mutex_, "its turn", [this] { return state_ == State::kInside; });
}

void Actor::enter() {
  if (inside_) return;
  desks_.give();
  await_turn();
  inside_ = true;
}

void Actor::leave() {
  CHECK(inside_) << "an actor gives back a turn that it has not";
  inside_ = false;
  become(State::kAway);
  desks_.take();
}

void Actor::rest() {
  CHECK(inside_) << "an actor rests outside";
  await_turn();
}

void Actor::end() {
  if (!inside_) desks_.give();
  inside_ = false;
  become(State::kEnded);
}

}  // namespace shoal::simulate
