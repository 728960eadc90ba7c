// Completes the Joins of processes with what their connections show, and holds those of servers
// that the job did not begin with back until they were dialled: if the workers could not reach such
// a server, the job would end with it. Used on the strand of the coordinator's host.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "shoal/table/link/process_state.h"

namespace shoal::table {

class Joins {
 public:
  // `reached(rank, join)`: the server answers. `refused(rank, why)`: it does not.
  Joins(ProcessState& process, const Strand& strand, std::function<void(Rank, Message)> reached,
        std::function<void(Rank, const std::string&)> refused)
      : process_(process),
        strand_(strand),
        reached_(std::move(reached)),
        refused_(std::move(refused)) {}

  // Notes the host that the connections of a process come from.
  void come_from(Rank rank, std::string host) { hosts_[rank] = std::move(host); }
  // Completes the message, if it is a Join. Returns whether it waits, to be passed to `reached`.
  bool holds(Rank rank, Message& message);

 private:
  ProcessState& process_;
  const Strand strand_;
  const std::function<void(Rank, Message)> reached_;
  const std::function<void(Rank, const std::string&)> refused_;
  std::map<Rank, std::string> hosts_;
  std::map<Rank, bool> dialled_;  // whether the servers that were dialled have answered
};

}  // namespace shoal::table
