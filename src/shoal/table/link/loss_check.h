// Holds back losses that the coordinator may be wrong about: it was stopped a moment ago, or it is
// cut off from the others, which then fall silent one after the other.
#pragma once

#include <functional>
#include <map>

#include "shoal/table/link/peer.h"
#include "shoal/table/link/sleep_watch.h"

namespace shoal::table {

// Used on the strand, which it must not outlive.
class LossCheck {
 public:
  // `lost(rank, error)`: the process is lost.
  LossCheck(ProcessState& process, const Strand& strand, Peers& peers,
            std::function<void(Rank, const Error&)> lost)
      : process_(process),
        strand_(strand),
        peers_(peers),
        lost_(std::move(lost)),
        sleep_(strand, process.options.stall_abort) {}

  bool has_slept() const { return sleep_.has_slept(); }
  // Calls `lost`, now or within half of the time after which silence counts. If by then less than
  // half of the processes are heard, these are cut off from the others, which may go on: this
  // process ends, and can join them again.
  void look(Rank rank, const Error& error);

 private:
  // Returns how many of the processes that were in the job a moment ago are heard: the first of the
  // pair, this one included. The second is the number of all.
  std::pair<std::size_t, std::size_t> heard() const;
  void decide();

  ProcessState& process_;
  const Strand strand_;
  Peers& peers_;
  const std::function<void(Rank, const Error&)> lost_;
  SleepWatch sleep_;
  std::map<Rank, Error> silent_;  // not decided yet
};

}  // namespace shoal::table
