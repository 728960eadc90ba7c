// The error of a generation that began in vain: its chief was lost before it had given the servers
// the params. All workers go on to another one, in which the next of them is the chief.
#pragma once

#include "shoal/base/error.h"

namespace shoal::table {

Error began_in_vain();
bool is_in_vain(const Error& error);

}  // namespace shoal::table
