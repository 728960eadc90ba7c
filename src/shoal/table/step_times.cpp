#include "shoal/table/step_times.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace shoal::table {

void StepTimes::add(double seconds, std::uint32_t steps) {
  constexpr std::uint32_t kEnough = 20;  // after so many the ones before do not matter
  for (std::uint32_t step = 0; step < std::min(steps, kEnough); ++step) {
    const double time = known() ? std::min(seconds, kMost * smoothed_) : seconds;
    smoothed_ = known() ? smoothed_ + kShare * (time - smoothed_) : time;
    recent_.push_back(time);
    if (recent_.size() > kWindow) recent_.pop_front();
  }
}

double StepTimes::high() const {
  if (!known()) return 0;
  std::vector<double> times(recent_.begin(), recent_.end());
  const std::size_t place = (9 * times.size() + 9) / 10 - 1;  // nearest rank
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(place));
  return std::max(smoothed_, times[place]);
}

int steps_within(double available, double seconds, double epsilon) {
  constexpr double kMany = 1e9;
  const double more = std::floor((available - seconds - epsilon) / seconds);
  return 1 + static_cast<int>(std::clamp(more, 0.0, kMany));
}

}  // namespace shoal::table
