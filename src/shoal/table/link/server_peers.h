// The servers of a worker's generation, by number, and the connections with them. Connections are
// kept from one generation to the next.
#pragma once

#include <algorithm>

#include "shoal/table/link/peer.h"

namespace shoal::table {

class ServerPeers {
 public:
  struct Server {
    Rank rank = 0;
    std::unique_ptr<Peer> peer;    // null for the server in this process
    bool up = false;               // guarded by the process's mutex, as the next
    bool ready = false;            // has the rows of this generation
    std::vector<Message> initial;  // the chief's plan and numbers, until it is ready; on the strand
  };

  ServerPeers(ProcessState& process, const Strand& strand, PeerOwner& owner)
      : process_(process), strand_(strand), owner_(owner) {}

  // Takes over the servers of the roster: dials those that are new, and closes connections with
  // those that have left. On the strand, while no other thread looks.
  void connect(const RosterBody& roster) {
    std::vector<Server> next;
    for (const RosterBody::Process& process : roster.processes) {
      if (process.server < 0) continue;
      const auto known = std::ranges::find(servers_, process.rank, &Server::rank);
      if (known != servers_.end()) {
        next.push_back(std::move(*known));
        continue;
      }
      const bool own = process.rank == process_.options.rank;
      auto peer =
          own ? nullptr
              : std::make_unique<Peer>(process_, strand_, Purpose::kRows, process.rank, owner_);
      next.push_back({.rank = process.rank, .peer = std::move(peer), .up = own, .initial = {}});
    }
    {
      MutexLock lock(process_.mutex);
      for (Server& server : servers_)
        if (server.peer) former_.push_back(std::move(server.peer));
      servers_ = std::move(next);
      own_ = roster.processes[process_.options.rank].server;
    }
    for (const auto& peer : former_) peer->close(true);
    for (const Server& server : servers_) {
      if (server.up || !server.peer) continue;
      std::string address = roster.processes[server.rank].address;
      if (server.rank == 0 && is_anywhere(split_address(address).host))
        address = process_.options.coordinator;
      server.peer->dial(address, process_.options.connect);
    }
  }
  void close(bool with_bye) {  // on the strand
    for (const Server& server : servers_)
      if (server.peer) server.peer->close(with_bye);
  }

  int size() const { return static_cast<int>(servers_.size()); }
  Server& operator[](int number) { return servers_[number]; }
  std::vector<Server>& all() { return servers_; }
  int own() const { return own_; }  // the number of the server in this process, or -1
  int number_of(const Peer& peer) const {
    const auto found = std::ranges::find(servers_, peer.rank(), &Server::rank);
    return static_cast<int>(found - servers_.begin());
  }
  // With the process's mutex held:
  bool all_are(bool Server::*state) const { return std::ranges::all_of(servers_, state); }
  void note(int number, bool Server::*state) {  // takes the mutex
    MutexLock lock(process_.mutex);
    (*this)[number].*state = true;
    process_.changed.notify_all();
  }
  void none_is_ready() {  // likewise
    MutexLock lock(process_.mutex);
    for (Server& server : servers_) server.ready = false;
  }
  // "; the slowest worker it hears of is rank 2 (host b, last clock 17)", or "".
  std::string slowest_worker() const {
    std::string slowest;
    Clock least = kUnbounded;
    for (const Server& server : servers_) {
      const bool works = process_.roster()->processes[server.rank].worker >= 0;
      const Clock clock = server.peer && works ? server.peer->heard_clock() : kUnbounded;
      if (clock < 0 || clock >= least) continue;
      least = clock;
      slowest = str("; the slowest worker it hears of is ", process_.name_of(server.rank, clock));
    }
    return slowest;
  }

 private:
  ProcessState& process_;
  const Strand strand_;
  PeerOwner& owner_;
  // Changes on the strand with the process's mutex held, while the solver's thread waits.
  std::vector<Server> servers_;
  std::vector<std::unique_ptr<Peer>> former_;  // closed
  int own_ = -1;
};

}  // namespace shoal::table
