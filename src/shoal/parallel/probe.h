// How fast the servers of a job are, measured before it trains.
#pragma once

#include <vector>

#include "shoal/base/error.h"
#include "shoal/solver/team.h"
#include "shoal/table/placement.h"
#include "shoal/table/table.h"

namespace shoal::parallel {

// Bytes a second, by server, in which a worker of another process pushes rows and has the answers; 0 of a server that no other process has a
// worker for. Up to three workers measure, one after the other, and what counts is the fastest: what one of them sees may be its own link. Takes
// epoch 0 of the table, with rows of its own, and all workers; about 2 MiB each way for each server and who measures.
Result<std::vector<double>> measure_servers(table::Table& table, Team& team);

// The servers of the roster with these bandwidths (0: no limit; none at all: nothing is known). Where the fastest is less than a quarter faster than the
// slowest, they are taken to be alike.
table::Servers servers_of(const table::RosterBody& roster, const std::vector<double>& bandwidths);

}  // namespace shoal::parallel
