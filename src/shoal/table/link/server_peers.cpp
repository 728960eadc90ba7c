#include "shoal/table/link/server_peers.h"

#include <algorithm>

namespace shoal::table {

void ServerPeers::connect(const RosterBody& roster) {
  std::vector<Server> next;
  for (const RosterBody::Process& process : roster.processes) {
    if (process.server < 0) continue;
    const auto known = std::ranges::find(servers_, process.rank, &Server::rank);
    if (known != servers_.end()) {
      next.push_back(std::move(*known));
      known->peer.reset();
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

void ServerPeers::close(bool with_bye) {
  for (const Server& server : servers_)
    if (server.peer) server.peer->close(with_bye);
}

int ServerPeers::number_of(const Peer& peer) const {
  const auto found = std::ranges::find_if(
      servers_, [&](const Server& server) { return server.peer.get() == &peer; });
  return static_cast<int>(found - servers_.begin());
}

bool ServerPeers::all_are(bool Server::*state) const {
  return std::ranges::all_of(servers_, state);
}

void ServerPeers::note(int number, bool Server::*state) {
  MutexLock lock(process_.mutex);
  (*this)[number].*state = true;
  process_.changed.notify_all();
}

void ServerPeers::none_is_ready() {
  MutexLock lock(process_.mutex);
  for (Server& server : servers_) server.ready = false;
}

std::string ServerPeers::slowest_worker() const {
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

}  // namespace shoal::table
