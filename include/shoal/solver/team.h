// The steps that a solver takes together with the others of its team. A solver alone has a
// team of one. The solver knows this interface and nothing behind it. All calls on the solver's
// thread; every wait ends, with an error if need be.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

// A request to a solver from outside, for example by a signal.
enum class Action {
  kNone,
  kStop,      // end after this iteration, with a snapshot if snapshot_after_train
  kSnapshot,  // write one and go on
  kRequeue,   // write one and end; the run is to be continued later
  kRegroup,   // end, for another solver of this run to go on with what this one has come to
  kLeave,     // this member alone is to leave, and the others go on without it
};

class Team {
 public:
  virtual ~Team() = default;
  // 0 is the chief: it prints, and writes what the team writes once
  virtual int index() const { return 0; }
  virtual int size() const { return 1; }
  bool chief() const { return index() == 0; }

  // An error if the team has lost a member: for work that goes on for long without a wait.
  virtual Status status() const { return {}; }
  // Before iteration `iteration`: what all of the team do now, having finished that many. `mine` is
  // what this one wants; all do the same at the same iteration, perhaps a few iterations later.
  virtual Result<Action> agree(std::int64_t iteration, Action mine) {
    (void)iteration;
    return mine;
  }
  // Where members are at iterations of their own: this one stops here, because agree() said so, or
  // it wants something, or it has ended its iterations. Returns when all have stopped, with what
  // all do now together; with kNone if all have ended. Otherwise members that go on do. `last`:
  // whatever it is that they do, this solver makes no more updates.
  virtual Result<Action> meet(std::int64_t iteration, Action mine, bool ended, bool last) {
    (void)iteration, (void)ended, (void)last;
    return mine;
  }
  // Where members are at iterations of their own: this one leaves, having finished `iteration` and
  // heard of all its updates. `state` is what a gather for a snapshot would have had of it. False:
  // it cannot be spared, and all are about to stop.
  virtual Result<bool> leave(std::int64_t iteration, std::string state) {
    (void)iteration, (void)state;
    return false;
  }
  // Replaces each number by its sum over the team, in a fixed order. Of the same length everywhere.
  virtual Status sum(std::span<double> numbers) {
    (void)numbers;
    return {};
  }
  // On the chief one string a member, in order; on others nothing.
  virtual Result<std::vector<std::string>> gather(std::string mine) {
    return std::vector<std::string>{std::move(mine)};
  }
  // The chief's string, on all.
  virtual Result<std::string> share(std::string chiefs) { return chiefs; }
  // Numbers of an iteration, to be averaged over the team with these weights when all have spoken;
  // no worker waits for it.
  virtual void report(std::int64_t iteration, double weight, std::span<const double> numbers) {
    (void)iteration, (void)weight, (void)numbers;
  }
  // How the iterations since the last call went, in seconds, so that the slow one of a team can be
  // named. The call does not wait. data, rows: waited for; other: tests, snapshots
  struct Times {
    double iterations = 0, compute = 0, data = 0, rows = 0, other = 0;
  };
  virtual void note(std::int64_t iteration, const Times& times) { (void)iteration, (void)times; }
  // Averages that are complete and were not taken yet: on the chief alone.
  struct Average {
    std::int64_t iteration = 0;
    std::vector<double> numbers;
  };
  virtual std::vector<Average> take_averages() { return {}; }
};

}  // namespace shoal
