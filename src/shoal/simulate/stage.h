// Threads that run in virtual time: each works by itself, and looks at what all share only while it
// has the turn, which the scheduler gives to one at a time. So their work overlaps, and the order
// of what they do to each other is the scheduler's alone.
#pragma once

#include "shoal/base/mutex.h"

namespace shoal::simulate {

// How many actors may work by themselves at once; which of them do changes nothing but how long it
// takes.
class Desks {
 public:
  explicit Desks(int count) : free_(count) {}
  void take();
  void give();

 private:
  Mutex mutex_;
  Condition changed_;
  int free_ GUARDED_BY(mutex_);
};

class Actor {
 public:
  explicit Actor(Desks& desks) : desks_(desks) {}
  Actor(const Actor&) = delete;

  // ---- the scheduler ----
  // Gives the turn, when the actor wants it, and returns when it has given it back. Nothing if the
  // actor has ended.
  void turn();
  bool ended() const;

  // ---- the actor's thread ----
  void begin() { desks_.take(); }  // before anything else
  // Returns with the turn; at once if it has it.
  void enter();
  // Gives the turn back and goes on by itself.
  void leave();
  // Gives the turn back and returns when it has it again.
  void rest();
  void end();  // the last
  bool inside() const { return inside_; }

 private:
  enum class State { kAway, kWaiting, kInside, kEnded };
  void become(State state);
  void await_turn();

  Desks& desks_;
  mutable Mutex mutex_;
  Condition changed_;
  State state_ GUARDED_BY(mutex_) = State::kAway;
  bool inside_ = false;  // the actor's own view
};

}  // namespace shoal::simulate
