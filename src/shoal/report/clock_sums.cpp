#include "shoal/report/clock_sums.h"

#include <algorithm>
#include <utility>

namespace shoal {
namespace {

void add_counts(Histogram& sum, const Histogram& more) {
  sum.resize(std::max(sum.size(), more.size()));
  for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
}

}  // namespace

void ClockSums::add(const ClockMetrics& clock) {
  ++clocks;
  sum.worker = clock.worker;
  sum.clock = clock.clock;
  sum.time = clock.time;
  for (double ClockMetrics::*part :
       {&ClockMetrics::compute, &ClockMetrics::data_wait, &ClockMetrics::row_wait,
        &ClockMetrics::update, &ClockMetrics::other, &ClockMetrics::send, &ClockMetrics::receive,
        &ClockMetrics::samples})
    sum.*part += clock.*part;
  for (std::uint64_t ClockMetrics::*part :
       {&ClockMetrics::bytes_sent, &ClockMetrics::bytes_received, &ClockMetrics::shared_bytes,
        &ClockMetrics::local_steps, &ClockMetrics::drops})
    sum.*part += clock.*part;
  add_counts(sum.reads, clock.reads);
  add_counts(sum.pushes, clock.pushes);
}

std::optional<ClockSums> ClockWindow::add(const ClockMetrics& clock) {
  if (!sums_) sums_.emplace();
  sums_->add(clock);
  return clock.time - until_ < least_ ? std::nullopt : take();
}

std::optional<ClockSums> ClockWindow::take() {
  if (!sums_) return std::nullopt;
  sums_->seconds = std::max(1e-9, sums_->sum.time - std::exchange(until_, sums_->sum.time));
  return std::exchange(sums_, std::nullopt);
}

std::optional<double> mean_of(const Histogram& counts) {
  double sum = 0, number = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum += static_cast<double>(i) * static_cast<double>(counts[i]);
    number += static_cast<double>(counts[i]);
  }
  return number == 0 ? std::nullopt : std::optional(sum / number);
}

}  // namespace shoal
