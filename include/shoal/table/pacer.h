// Makes a scheme's decisions on whole tasks: which workers may start, how many local steps a task
// has, and whether its result counts. Pure: it gets the time and never waits. One object at the
// coordinator serves a job.
#pragma once

#include <chrono>
#include <utility>

#include "shoal/table/types.h"

namespace shoal::table {

// The time of a monotonic clock, passed in by the caller.
using Instant = std::chrono::nanoseconds;
using std::chrono::milliseconds;

// A worker's report of a task, or of a part of it, that it has computed. Durations are by its own
// monotonic clock; 0: not known.
struct TaskReport {
  std::uint32_t steps = 0;  // local steps done in this task so far
  // Seconds that one step took, without waiting for rows: the mean of the steps since its last
  // report of this task.
  double seconds = 0;
  double samples = 0;  // it read in this task
  // Seconds that it takes to hand in a task and get the rows back, without waiting for others.
  double exchange = 0;
  bool operator==(const TaskReport&) const = default;
};

enum class Verdict : std::uint8_t {
  kPush = 0,     // the task is over, and counts
  kDrop = 1,     // it is over, and is thrown away; the worker goes on from the rows as they are
  kAnother = 2,  // another local step, then ask again
};

// Permits a worker to start its next task, with so many local steps.
struct Start {
  int worker = 0;
  std::uint32_t steps = 1;  // 0: until the judge says that it is over
  // The mean steps of all workers in this round, if known: for aggregation by steps.
  double mean_steps = 1;
  // It starts no task: all tasks of the job have begun, and this worker's part is done.
  bool over = false;
  // The rows have changed while it waited. It gets them anew and starts from them.
  bool reread = false;
  // The number of tasks that each worker would have begun if all were equally fast, if they share
  // tasks.
  Clock at = 0;
  bool operator==(const Start&) const = default;
  void state(auto& io) { io(worker, steps, mean_steps, over, reread, at); }
};

class StateReader;
class StateWriter;

class Pacer {
 public:
  virtual ~Pacer() = default;
  // The worker takes part from now on, or no longer does: it finished, left or was lost.
  virtual void join(int worker, Instant now) = 0;
  virtual void leave(int worker, Instant now) = 0;
  // The worker, which takes part, has finished `clock` tasks, has the rows as they are after the
  // last, and requests another. `last` is its report of the last one; 0 steps: there is none.
  // Answered by take_starts(), once.
  virtual void ready(int worker, Clock clock, const TaskReport& last, Instant now) = 0;
  // The worker has computed its task `clock`, or one step of it. Answered at once.
  virtual Verdict judge(int, Clock, const TaskReport&, Instant) { return Verdict::kPush; }
  // Returns workers that were ready and may start now. Called after each of the calls above.
  virtual std::vector<Start> take_starts(Instant) { return std::exchange(starts_, {}); }
  // Returns remarks for the log about the worker that was judged, since the last call. They follow
  // its name ("has had none of its last 20 tasks counted, ...").
  std::vector<std::string> take_remarks() { return std::exchange(remarks_, {}); }
  // Returns the last round that has ended since the last call, as ESync's state server shows it in
  // JSON; "" if none has, or the pacer does not decide how many steps a task has. By worker: its
  // number, steps, seconds of the last, the time of its end in seconds since the pacer's first
  // worker came, whether it is done, and the round, from 1.
  std::string take_round() { return std::exchange(ended_round_, {}); }
  // These write all that the pacer knows, and read it into a new pacer of the same scheme.
  virtual void save(StateWriter& io) = 0;
  virtual void load(StateReader& io) = 0;
  // Passes what was not taken yet.
  void state_not_taken(auto& io) { io(starts_, remarks_, ended_round_); }

 protected:
  std::vector<Start> starts_;
  std::vector<std::string> remarks_;
  std::string ended_round_;
};

}  // namespace shoal::table
