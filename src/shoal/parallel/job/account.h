// Says how useful a job's compute was, for the chief's log.
#pragma once

#include <string>
#include <vector>

#include "shoal/table/account.h"

namespace shoal::parallel {

// Returns one line, and, where processes were lost, one more for each of the last of them.
std::vector<std::string> lines_of(const table::AccountBody& account);

}  // namespace shoal::parallel
