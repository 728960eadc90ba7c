// A scheme's decisions on whole tasks: who may start, how many local steps a task has, and whether what came of it counts. Pure: told the time,
// never waiting. One object at the coordinator serves a job.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/table/types.h"

namespace shoal::table {

// The time of a monotonic clock, given from outside.
using Instant = std::chrono::nanoseconds;

// What a worker says of a task, or of a part of it, that it has computed.
struct TaskReport {
  std::uint32_t steps = 0;       // local steps done in this task so far
  double seconds = 0;            // that the last of them took, waiting for rows apart, by the worker's own monotonic clock
  double samples = 0;            // it read in this task
};

enum class Verdict : std::uint8_t {
  kPush = 0,       // the task is over, and counts
  kDrop = 1,       // it is over, and is thrown away; the worker goes on from the rows as they are
  kAnother = 2,    // another local step, then ask again
};

// A worker may start its next task, with so many local steps.
struct Start {
  int worker = 0;
  std::uint32_t steps = 1;       // 0: until the judge says that it is over
  double mean_steps = 1;         // of all workers in this round, where that is known: for aggregation by steps
};

class Pacer {
 public:
  virtual ~Pacer() = default;
  // The worker takes part from now on, or does no longer: it finished, left or was lost.
  virtual void join(int worker, Instant now) = 0;
  virtual void leave(int worker, Instant now) = 0;
  // The worker, which takes part, has finished `clock` tasks and wants to start another. Answered by take_starts(), once.
  virtual void ready(int worker, Clock clock, Instant now) = 0;
  // The worker has computed its task `clock`, or one step of it. Answered at once.
  virtual Verdict judge(int worker, Clock clock, const TaskReport& report, Instant now) = 0;
  // Workers that were ready and may start now. Asked after each of the calls above.
  virtual std::vector<Start> take_starts(Instant now) = 0;
  // For the log and for people who look at the job: a JSON object of what it has measured and decided; "" if there is nothing.
  virtual std::string describe() const { return ""; }
};

}  // namespace shoal::table
