// Workers' reports of their times, and who is much slower than the others, and why.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Stragglers {
 public:
  static constexpr int kInARow = 5;
  static constexpr double kTimesTheMedian = 2;

  explicit Stragglers(const Members& members) : members_(members) {}
  // Returns a line for the log when a worker's time for an iteration, waiting for rows apart, is
  // more than twice the median of all for the fifth report in a row; once for each such row. ""
  // otherwise. That one iteration took a worker in its last report, waiting for rows apart; 0:
  // there was none.
  double seconds(std::uint32_t rank);
  Result<std::string> take(std::uint32_t rank, std::string_view body);

 private:
  struct Worker {
    std::optional<ReportBody> last;
    int slow = 0;
  };
  double median();

  const Members& members_;
  std::map<std::uint32_t, Worker> workers_;  // by rank
};

}  // namespace shoal::table
