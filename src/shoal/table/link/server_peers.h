// The servers of a worker's generation, by number, and the connections with them. Connections are
// kept from one generation to the next.
#pragma once

#include "shoal/table/link/peer.h"

namespace shoal::table {

class ServerPeers {
 public:
  struct Server {
    std::uint32_t rank = 0;
    std::unique_ptr<Peer> peer;    // null for the server in this process
    bool up = false;               // guarded by the process's mutex, as the next
    bool ready = false;            // has the rows of this generation
    std::vector<Message> initial;  // the chief's plan and numbers, until it is ready; on the strand
  };

  ServerPeers(ProcessState& process, const Strand& strand, PeerOwner& owner)
      : process_(process), strand_(strand), owner_(owner) {}

  // Takes over the servers of the roster: dials those that are new, and closes connections with
  // those that have left. On the strand, while no other thread looks.
  void connect(const RosterBody& roster);
  void close(bool with_bye);  // on the strand

  int size() const { return static_cast<int>(servers_.size()); }
  Server& operator[](int number) { return servers_[static_cast<std::size_t>(number)]; }
  std::vector<Server>& all() { return servers_; }
  int own() const { return own_; }  // the number of the server in this process, or -1
  int number_of(const Peer& peer) const;
  // With the process's mutex held:
  bool all_are(bool Server::*state) const;
  void note(int number, bool Server::*state);  // takes the mutex
  void none_is_ready();                        // likewise
  // "; the slowest worker it hears of is rank 2 (host b, last clock 17)", or "".
  std::string slowest_worker() const;

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
