// How fast the servers of a job are, measured in a generation of its own (RosterBody::measures),
// between two in which it trains.
#pragma once

#include <vector>

#include "shoal/base/error.h"
#include "shoal/parallel/worker.h"
#include "shoal/solver/team.h"
#include "shoal/table/table.h"

namespace shoal::parallel {

// Bytes a second, by server, in which a worker of another process has rows of it; 0 of a server
// that no other process has a worker for. Up to three workers measure, one after the other, and
// what counts is the fastest: what one of them sees may be its own link. All workers take part,
// with a plan of their own in the roster's generation, with this scheme and the clocks of the
// roster; 2 MiB from each server to each who measures.
Result<std::vector<double>> measure_servers(table::Table& table, Team& team,
                                            const std::string& scheme);

}  // namespace shoal::parallel
