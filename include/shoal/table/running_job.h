// Finds the job of a process that is started again, if that goes on without it.
#pragma once

#include <string>
#include <vector>

#include "shoal/table/table.h"

namespace shoal::table {

// Asks the processes at these addresses, the first one before the others, whether they are in a job
// of the same token that the process of options.rank was in, and that has counted it out. Returns
// the addresses at which it can join, with one that has answered first; none: the process is
// awaited, or there is no job. An address that refuses connections costs nothing, one that is
// silent a second. While the job still counts on the process, it waits until that is seen to be
// lost. Error (kPeer): it is not lost, so another process has its rank.
Result<std::vector<std::string>> find_running_job(const ServiceOptions& options,
                                                  const std::vector<std::string>& addresses);

}  // namespace shoal::table
