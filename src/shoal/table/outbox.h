// The messages that a shard sends.
#pragma once

#include "shoal/table/messages.h"

namespace shoal::table {

inline constexpr int kCoordinator = -1;
// Returns the number that stands for a server in Outgoing::to.
constexpr int to_server(int server) { return -2 - server; }
constexpr bool is_to_server(int to) { return to <= to_server(0); }
constexpr int server_of(int to) { return -2 - to; }

struct Outgoing {
  int to = 0;  // a worker, kCoordinator or to_server()
  Message message;
};
using Outbox = std::vector<Outgoing>;

}  // namespace shoal::table
