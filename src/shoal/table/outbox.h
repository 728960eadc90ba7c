// The messages that a shard sends.
#pragma once

#include "shoal/table/messages.h"

namespace shoal::table {

inline constexpr int kCoordinator = -1;
struct Outgoing {
  int to = 0;  // a worker, or kCoordinator
  Message message;
};
using Outbox = std::vector<Outgoing>;

}  // namespace shoal::table
