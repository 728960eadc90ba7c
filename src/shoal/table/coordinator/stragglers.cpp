#include "shoal/table/coordinator/stragglers.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace shoal::table {
namespace {

// Of one iteration, without the time in which it waited for others.
double busy(const ReportBody& report) {
  return (report.compute + report.data + report.other) / report.iterations;
}

std::string largest_part(const ReportBody& report) {
  const std::pair<const char*, double> parts[] = {{"compute", report.compute},
                                                  {"data", report.data},
                                                  {"waiting for rows", report.rows},
                                                  {"other", report.other}};
  const auto* largest =
      std::ranges::max_element(parts, {}, &std::pair<const char*, double>::second);
  const double all = report.compute + report.data + report.rows + report.other;
  return str(largest->first, " (", std::lround(100 * largest->second / all), " %)");
}

std::string rounded(double number) {
  std::ostringstream out;
  out << std::setprecision(3) << number;
  return std::move(out).str();
}

}  // namespace

Result<std::string> Stragglers::take(std::uint32_t rank, std::string_view body) {
  const Result<ReportBody> report = decode_report(body);
  if (!report.ok()) return members_.broken(rank, " sends ", report.error().message);
  Worker& worker = workers_[rank];
  if (report.value().iterations == 0) return std::string();
  worker.last = report.value();
  const double own = busy(*worker.last), middle = median();
  worker.slow = own > kTimesTheMedian * middle ? worker.slow + 1 : 0;
  if (worker.slow != kInARow) return std::string();
  return str("straggler: ", members_.name(rank), " needs ", rounded(own),
             " s for an iteration, the median of all is ", rounded(middle), " s, for ", kInARow,
             " reports in a row; the largest part of its time is ", largest_part(*worker.last));
}

double Stragglers::seconds(std::uint32_t rank) {
  return workers_[rank].last ? busy(*workers_[rank].last) : 0;
}

// Of an even number of workers the smaller one in the middle, so that one of two can be a
// straggler.
double Stragglers::median() {
  std::vector<double> times;
  for (const std::uint32_t rank : members_.active())
    if (workers_[rank].last) times.push_back(busy(*workers_[rank].last));
  if (times.empty()) return 0;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

}  // namespace shoal::table
