#include "shoal/compat/scheme_names.h"

#include <algorithm>
#include <vector>

#include "shoal/base/text.h"

namespace shoal::compat {

Result<std::string> scheme_meant(const std::string& flag, const std::string& value) {
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

int clocks_of_mxnetg(int staleness) { return std::max(0, staleness - 1); }

}  // namespace shoal::compat
