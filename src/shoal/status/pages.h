// Makes what the status server answers of what a board shows.
#pragma once

#include <string>
#include <string_view>

#include "shoal/base/error.h"
#include "shoal/report/status_board.h"

namespace shoal {

// Returns the object of /status.json (docs/watching.md).
std::string status_json(const RunStatus& status);
// Returns the text that Prometheus scrapes. An error if this build has no prometheus-cpp.
Result<std::string> prometheus_text(const RunStatus& status);
// Returns the page, which asks for /status.json and needs nothing else.
std::string_view status_page();

}  // namespace shoal
