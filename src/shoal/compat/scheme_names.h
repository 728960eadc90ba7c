// Names that other systems have for schemes, as values of flags of theirs.
#pragma once

#include <algorithm>

#include "shoal/base/error.h"
#include "shoal/base/text.h"

namespace shoal::compat {

// Returns the type of scheme that Poseidon's --consistency_model or MXNet-G's --kv-store mean. An
// error (kUsage) says which values are known.
inline Result<std::string> scheme_meant(const std::string& flag, const std::string& value) {
  constexpr struct {
    const char *flag, *value, *type;
  } kNames[] = {
      {"--consistency_model", "SSP", "ssp"},     {"--consistency_model", "SSPPush", "ssp"},
      {"--consistency_model", "SSPAggr", "ssp"}, {"--kv-store", "dist_sync", "bsp"},
      {"--kv-store", "dist_async", "async"},     {"--kv-store", "dist_ssync", "ssp"},
      {"--kv-store", "dist_gsync", "grouped"}};
  std::vector<std::string> known;
  for (const auto& name : kNames) {
    if (flag != name.flag) continue;
    if (value == name.value) return std::string(name.type);
    known.push_back(name.value);
  }
  const std::string last = known.back();
  known.pop_back();
  return Error{Code::kUsage, str(flag, '=', value, ": known are ", join(known), " and ", last)};
}

// Returns the clocks of MXNet-G's --staleness, which admits one fewer than it says.
inline int clocks_of_mxnetg(int staleness) { return std::max(0, staleness - 1); }

}  // namespace shoal::compat
