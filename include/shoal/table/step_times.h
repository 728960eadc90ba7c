// How long a worker's local steps take, from what it reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace shoal::table {

class StepTimes {
 public:
  static constexpr double kShare = 0.3;  // of a new step's time in the smoothed one
  // times the smoothed one: a longer time counts as that, so that a hiccup is not taken for a
  // change
  static constexpr double kMost = 3;
  static constexpr std::size_t kWindow = 10;  // times that are remembered

  // So many steps took so long each, above 0.
  void add(double seconds, std::uint32_t steps);
  bool known() const { return !recent_.empty(); }
  double smoothed() const { return smoothed_; }  // what to expect
  // what nine of ten stay below, or the smoothed time if that is more: to be in time
  double high() const;

 private:
  double smoothed_ = 0;
  std::deque<double> recent_;
};

// Local steps of a worker that needs `seconds` for one while the slowest needs `available` for its
// part: it makes another one as long as that ends `epsilon` or more before the slowest does; at
// least one.
int steps_within(double available, double seconds, double epsilon);

}  // namespace shoal::table
