// A scheme's decisions on whole tasks: who may start, how many local steps a task has, and whether
// what came of it counts. Pure: told the time, never waiting. One object at the coordinator serves
// a job.
#pragma once

#include <chrono>
#include <utility>

#include "shoal/table/types.h"

namespace shoal::table {

// The time of a monotonic clock, given from outside.
using Instant = std::chrono::nanoseconds;
using std::chrono::milliseconds;

// A worker's report of a task, or of a part of it, that it has computed. Durations are by its own
// monotonic clock; 0: not known.
struct TaskReport {
  std::uint32_t steps = 0;  // local steps done in this task so far
  // that one of them took, waiting for rows apart: the mean of those since it last spoke of this
  // task
  double seconds = 0;
  double samples = 0;  // it read in this task
  // seconds that it takes to hand in a task while the rows come back, waiting for others apart
  double exchange = 0;
  bool operator==(const TaskReport&) const = default;
};

enum class Verdict : std::uint8_t {
  kPush = 0,     // the task is over, and counts
  kDrop = 1,     // it is over, and is thrown away; the worker goes on from the rows as they are
  kAnother = 2,  // another local step, then ask again
};

// A worker may start its next task, with so many local steps.
struct Start {
  int worker = 0;
  std::uint32_t steps = 1;  // 0: until the judge says that it is over
  // of all workers in this round, where that is known: for aggregation by steps
  double mean_steps = 1;
  // it starts none: the tasks of the job are all begun, and this worker's part is done
  bool over = false;
  // the rows have changed while it waited, and it is to start from what they are now: it gets them
  // anew
  bool reread = false;
  // where workers share their tasks: so many each would have begun, if all were equally fast
  Clock at = 0;
  bool operator==(const Start&) const = default;
};

class Pacer {
 public:
  virtual ~Pacer() = default;
  // The worker takes part from now on, or does no longer: it finished, left or was lost.
  virtual void join(int worker, Instant now) = 0;
  virtual void leave(int worker, Instant now) = 0;
  // The worker, which takes part, has finished `clock` tasks, has the rows as they are after the
  // last, and wants to start another. `last` is what it says of that one; of 0 steps: nothing.
  // Answered by take_starts(), once.
  virtual void ready(int worker, Clock clock, const TaskReport& last, Instant now) = 0;
  // The worker has computed its task `clock`, or one step of it. Answered at once.
  virtual Verdict judge(int, Clock, const TaskReport&, Instant) { return Verdict::kPush; }
  // Workers that were ready and may start now. Asked after each of the calls above.
  virtual std::vector<Start> take_starts(Instant) { return std::exchange(starts_, {}); }
  // Remarks for the log about the worker that was judged, whose name they follow ("has had none of
  // its last 20 tasks counted, ..."), since the last call.
  std::vector<std::string> take_remarks() { return std::exchange(remarks_, {}); }
  // The last round that has ended since the last call, as ESync's state server shows it in JSON, of
  // a pacer that decides how many steps a task has; "" if none has. By worker: its number, steps,
  // seconds of the last, the time of its end in seconds since the pacer's first worker came,
  // whether it is done, and the round, from 1.
  std::string take_round() { return std::exchange(ended_round_, {}); }

 protected:
  std::vector<Start> starts_;
  std::vector<std::string> remarks_;
  std::string ended_round_;
};

}  // namespace shoal::table
