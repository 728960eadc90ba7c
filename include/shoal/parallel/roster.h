// Finds workers and servers in the roster of a job, which is the coordinator's list of processes.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/table/messages.h"
#include "shoal/table/placement.h"

namespace shoal::parallel {

// Return the numbers of workers and of servers in a job.
int workers_of(const table::RosterBody& roster);
int servers_of(const table::RosterBody& roster);
// Return the rank of each worker's process, and the iterations that each worker has finished.
std::vector<std::uint32_t> ranks_of(const table::RosterBody& roster);
std::vector<table::Clock> clocks_of(const table::RosterBody& roster);
// Returns the bandwidths of the servers' links, in their order; none in the first generation, whose
// roster has none.
std::vector<double> bandwidths_of(const table::RosterBody& roster);
// Returns the roster's servers with these bandwidths, bytes a second in their order (0: no limit;
// none at all: nothing is known). Where the fastest is less than a quarter faster than the slowest,
// they are taken to be alike.
table::Servers servers_of(const table::RosterBody& roster, const std::vector<double>& bandwidths);
// Returns whether the job is one process, with the one worker and the one server in it. Then no row
// leaves the process.
bool is_alone(const table::RosterBody& roster);

}  // namespace shoal::parallel
