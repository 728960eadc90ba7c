// Reports a solver's progress, in the log and to its observer and meter. Caffe's lines are kept to
// the letter: scripts read them.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "shoal/solver/solver_core.h"

namespace shoal {

// Decides when the log says that data comes too slowly: once, when waiting took much of ten seconds
// of training or more. The first batches of a run, and a short load of the machine, take less.
class SlowData {
 public:
  // Adds the time since the last call: seconds of waiting for data, and all seconds of training.
  // Returns the share of waiting, 0 to 1, if the log is to say it now.
  std::optional<double> add(double waited, double seconds) {
    waited_ += waited;
    seconds_ += seconds;
    if (seconds_ < kLeastSeconds) return std::nullopt;
    const double share = std::exchange(waited_, 0) / std::exchange(seconds_, 0);
    if (share <= kMuch || std::exchange(told_, true)) return std::nullopt;
    return share;
  }

 private:
  static constexpr double kLeastSeconds = 10, kMuch = 0.2;
  double waited_ = 0, seconds_ = 0;
  bool told_ = false;
};

class Reporter : SolverPart {
 public:
  explicit Reporter(const SolverCore& core) : SolverPart(core) {}

  // Reports the start: the solver is complete. All members call this.
  void report_start();
  // Starts the clock: training begins at the present iteration.
  void start();
  // Called when the iteration was restored, not reached.
  void restored() { shown_iteration_ = progress_.iteration; }
  double seconds() const;  // since the run began to train
  // Adds seconds that went into tests and snapshots.
  void away(double seconds) { away_seconds_ += seconds; }
  // Logs a display at this iteration; if it is left out (not `counts`), nothing is logged.
  void display(bool counts);
  void tested(int index, const std::vector<TestScore>& scores, double loss);
  // Returns when the averages of all displays were passed on.
  Status end_observing();
  void mark(Meter::Mark mark) const;

 private:
  void log_display();
  void log_speed(double seconds);
  void observe_display(bool counts);
  void pass_on_averages();
  double seconds_waited() const;

  bool observed_ = false;  // by the chief's observer
  struct Shown {
    double seconds = 0, rate = 0;
  };
  std::map<std::int64_t, Shown> shown_;  // displays whose averages have not come, by iteration
  SolverCore::Clock::time_point started_at_, shown_at_;
  std::int64_t shown_iteration_ = 0;  // in the last display
  double away_seconds_ = 0;           // since the last display
  // seconds_waited() and the updater's at the last display
  double shown_wait_ = 0, shown_rows_wait_ = 0;
  SlowData slow_data_;
};

}  // namespace shoal
