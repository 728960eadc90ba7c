// Sums vectors by MPI, for fabrics that TCP does not serve. Members, tests and snapshots still use
// the table.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "shoal/parallel/sums/vector_sum.h"

namespace shoal::parallel {

// Returns why this build cannot sum by MPI; "" if it can.
std::string why_no_mpi();

// Starts MPI if that was not done, before the first sum of a generation, on the thread that will
// make them. MPI's ranks are fixed. Throws ConfigError unless the roster's processes are workers
// and as many as MPI's; `name` stands in front. MPI waits for all ranks here, and no call can end
// that wait: if the job fails meanwhile, this ends the process with the code of the table's error.
void begin_mpi(const table::Table& table, const std::string& name);
// Makes a sum. It has the same sums in the same order on all workers. Its ranks find each other
// when it expects for the first time, and test whether MPI's sum in one call gives all the same
// bits. If it does not, each number is summed at one rank and then copied.
std::unique_ptr<VectorSum> make_mpi_sum(table::Table& table, std::size_t count);
// Ends MPI. All sums of this process are over, and the others' will be: without it mpirun takes the
// process for failed. Waits for all ranks, half an hour at most: then it ends the process.
void end_mpi();

}  // namespace shoal::parallel
