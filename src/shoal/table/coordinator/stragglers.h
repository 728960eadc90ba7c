// Finds the workers that are much slower than the others, and why, from the times that all report.
#pragma once

#include <iomanip>
#include <map>

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

class Stragglers {
 public:
  static constexpr int kInARow = 5;
  static constexpr double kTimesTheMedian = 2;

  explicit Stragglers(Members& members) : members_(members) {}
  // Warns when a worker's time for an iteration, waiting for rows apart, is more than twice the
  // median of all for the fifth report in a row; once for each such row.
  Status take(Rank rank, std::string_view body) {
    const Result<ReportBody> report = decode<ReportBody>(body);
    if (!report.ok()) return members_.broken(rank, " sends ", report.error().message);
    Worker& worker = workers_[rank];
    if (report.value().iterations == 0) return {};
    worker.last = report.value();
    const double own = seconds(rank), middle = median();
    worker.slow = own > kTimesTheMedian * middle ? worker.slow + 1 : 0;
    if (worker.slow == kInARow)
      members_.warn(str("straggler: ", members_.name(rank), " needs ", std::setprecision(3), own,
                        " s for an iteration, the median of all is ", middle, " s, for ", kInARow,
                        " reports in a row; the largest part of its time is ",
                        largest_part(*worker.last)));
    return {};
  }
  void state(auto& io) { io(workers_); }
  // Returns the seconds of one iteration in the worker's last report, without its waiting for
  // others; 0: there is no report.
  double seconds(Rank rank) {
    const std::optional<ReportBody>& last = workers_[rank].last;
    return last ? (last->compute + last->data + last->other) / last->iterations : 0;
  }

 private:
  struct Worker {
    std::optional<ReportBody> last;
    int slow = 0;
    void state(auto& io) { io(last, slow); }
  };
  // Returns the median. Of an even number of workers it is the smaller of the two in the middle, so
  // that one of two can be a straggler.
  double median() {
    std::vector<double> times;
    for (const Rank rank : members_.active())
      if (workers_[rank].last) times.push_back(seconds(rank));
    if (times.empty()) return 0;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
  }
  static std::string largest_part(const ReportBody& report) {
    const std::pair<double, const char*> parts[] = {{report.compute, "compute"},
                                                    {report.data, "data"},
                                                    {report.rows, "waiting for rows"},
                                                    {report.other, "other"}};
    const auto& [largest, name] =
        std::ranges::max(parts, {}, &std::pair<double, const char*>::first);
    const double all = report.compute + report.data + report.rows + report.other;
    return str(name, " (", std::lround(100 * largest / all), " %)");
  }

  Members& members_;
  std::map<Rank, Worker> workers_;  // by rank
};

}  // namespace shoal::table
