// The steps that a solver takes together with the others of its team. A solver alone has a team of
// one. The solver knows only this interface. All calls on the solver's thread; every wait ends,
// with an error if need be.
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
  // Returns this member's number. 0 is the chief: it prints, and writes what the team writes once.
  virtual int index() const { return 0; }
  virtual int size() const { return 1; }
  bool chief() const { return index() == 0; }
  // Returns whether this member may be the chief of the next segment: those before it may have left
  // the team by then, or be lost.
  virtual bool may_lead() const { return chief(); }

  // Returns an error if the job has failed, or a loss interrupts this member: for long work without
  // a wait.
  virtual Status status() const { return {}; }
  // Returns what the whole team does now, before iteration `iteration`. `mine`: the wish of this
  // member. All members do the same at the same iteration, perhaps a few iterations later.
  virtual Result<Action> agree(std::int64_t iteration, Action mine) {
    (void)iteration;
    return mine;
  }
  // Used where members are at iterations of their own. This one stops here, because agree() said
  // so, it has a wish, or it has ended its iterations. Returns when all have stopped: what all do
  // now, or kNone if all have ended. Unless that ends the run, members that have not ended go on
  // afterwards. `last`: this solver makes no further updates.
  virtual Result<Action> meet(std::int64_t iteration, Action mine, bool ended, bool last) {
    (void)iteration, (void)ended, (void)last;
    return mine;
  }
  // Used after a loss that interrupts all members: an error that is_interruption() came from a call
  // of the team or the updater. Returns what all say once all were interrupted; "" of those that
  // are lost. From here on other calls wait again, until another loss interrupts them.
  virtual Result<std::vector<std::string>> reunite(std::string mine) {
    return std::vector<std::string>{std::move(mine)};
  }
  // Gives, after that, the string of the first member that is left to those that lead if it is
  // lost (may_lead()). Returns it there; on others "".
  virtual Result<std::string> hand_on(std::string firsts) { return firsts; }
  // Returns, after that, how all end this part of the run.
  virtual Result<Action> ends() { return Action::kRegroup; }
  // Used where members are at iterations of their own. This one leaves, having finished `iteration`
  // and received the answers to all its updates. `state` is its part of a gather for a snapshot.
  // Returns false if it cannot be spared, and all are about to stop.
  virtual Result<bool> leave(std::int64_t iteration, std::string state) {
    (void)iteration, (void)state;
    return false;
  }
  // Replaces each number by its sum over the team, in a fixed order. `numbers` has the same length
  // on all members.
  virtual Status sum(std::span<double> numbers) {
    (void)numbers;
    return {};
  }
  // Returns on the chief, or, if that is lost, on the next member, one string for each member, in
  // order; on others nothing.
  virtual Result<std::vector<std::string>> gather(std::string mine) {
    return std::vector<std::string>{std::move(mine)};
  }
  // Returns the chief's string on all members.
  virtual Result<std::string> share(std::string chiefs) { return chiefs; }
  // Sends numbers of an iteration, which are averaged over the team with these weights when all
  // have sent theirs. No worker waits for it.
  virtual void report(std::int64_t iteration, double weight, std::span<const double> numbers) {
    (void)iteration, (void)weight, (void)numbers;
  }
  // Reports how many seconds the iterations since the last call took, to name the slow member of a
  // team. Does not wait. data, rows: waited for; other: tests, snapshots.
  struct Times {
    double iterations = 0, compute = 0, data = 0, rows = 0, other = 0;
  };
  virtual void note(std::int64_t iteration, const Times& times) { (void)iteration, (void)times; }
  // Returns the averages that are complete and were not taken yet, on the chief alone.
  struct Average {
    std::int64_t iteration = 0;
    std::vector<double> numbers;
  };
  virtual std::vector<Average> take_averages() { return {}; }
};

}  // namespace shoal
