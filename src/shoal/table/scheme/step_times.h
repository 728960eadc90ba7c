// The time of a worker's local steps, from its reports: for pacers that set the number of steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <vector>

namespace shoal::table {

class StepTimes {
 public:
  static constexpr double kShare = 0.3;  // of a new step's time in the smoothed one
  // Times the smoothed one: a longer time counts as this, so that one slow step is not taken for a
  // change.
  static constexpr double kMost = 3;
  static constexpr std::size_t kWindow = 10;  // times that are remembered

  // Adds so many steps that took so long each, above 0.
  void add(double seconds, std::uint32_t steps) {
    constexpr std::uint32_t kEnough = 20;  // after so many the ones before do not matter
    for (std::uint32_t step = 0; step < std::min(steps, kEnough); ++step) {
      const double time = known() ? std::min(seconds, kMost * smoothed_) : seconds;
      smoothed_ = known() ? smoothed_ + kShare * (time - smoothed_) : time;
      recent_.push_back(time);
      if (recent_.size() > kWindow) recent_.pop_front();
    }
  }
  void state(auto& io) { io(smoothed_, recent_); }
  bool known() const { return !recent_.empty(); }
  double smoothed() const { return smoothed_; }  // what to expect
  // Requires known(). Returns the time that nine of ten steps stay below, or the smoothed time if
  // that is more, as a safe estimate.
  double high() const {
    std::vector<double> times(recent_.begin(), recent_.end());
    const std::size_t place = (9 * times.size() + 9) / 10 - 1;  // nearest rank
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(place));
    return std::max(smoothed_, times[place]);
  }

 private:
  double smoothed_ = 0;
  std::deque<double> recent_;
};

// Returns the local steps of a worker that needs `seconds` for one while the slowest needs
// `available` for its part. It makes another one as long as that ends `epsilon` or more before the
// slowest does; at least one.
inline int steps_within(double available, double seconds, double epsilon) {
  constexpr double kMany = 1e9;
  const double more = std::floor((available - seconds - epsilon) / seconds);
  return 1 + static_cast<int>(std::clamp(more, 0.0, kMany));
}

}  // namespace shoal::table
