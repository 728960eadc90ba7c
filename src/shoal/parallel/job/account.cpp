#include "shoal/parallel/job/account.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/error.h"

namespace shoal::parallel {
namespace {

// Returns "98.7 %", rounded down: 100 % is all.
std::string percent(std::int64_t part, double whole) {
  const double share = whole > 0 ? std::min(1.0, static_cast<double>(part) / whole) : 1;
  return str(std::floor(1000 * share) / 10, " %");
}

std::string in_seconds(double seconds) { return str(std::round(100 * seconds) / 100, " s"); }

std::string fault_line(const table::AccountBody::Fault& fault) {
  return str("    Fault ", fault.number, ": rank ", fault.rank,
             fault.host.empty() ? "" : " (host " + fault.host + ")", " since ",
             in_seconds(fault.since), ": ",
             fault.stopped < 0 ? "no progress from then on"
                               : in_seconds(fault.stopped) + " without progress",
             ", ", fault.steps, fault.steps == 1 ? " step" : " steps", " lost, ",
             fault.back < 0 ? "nobody in its place"
                            : "another in its place after " + in_seconds(fault.back),
             ". ", fault.why);
}

}  // namespace

std::vector<std::string> lines_of(const table::AccountBody& account) {
  std::string line =
      str("Useful: ", percent(account.in_params, static_cast<double>(account.computed)), " of the ",
          account.computed, " steps computed are in the params");
  if (account.losses == 0) return {line};
  line += str("; ", percent(account.in_params, account.possible), " of the ",
              std::llround(account.possible), " that all processes could have computed");
  std::vector<std::string> lines{line};
  for (const auto& fault : account.faults) lines.push_back(fault_line(fault));
  return lines;
}

}  // namespace shoal::parallel
