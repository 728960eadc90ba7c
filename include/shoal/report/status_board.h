// Keeps what a process knows of its run, for those who look at it while it trains
// (docs/watching.md). Its memory does not grow with the length of the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/mutex.h"
#include "shoal/report/clock_sums.h"
#include "shoal/report/metrics.h"

namespace shoal {

// Holds at most a fixed number of points of a curve. When it is full it keeps every second one, and
// from then on takes every second one of those that come.
class Curve {
 public:
  struct Point {
    std::int64_t iteration = 0;
    double time = 0, value = 0;  // seconds of the run
  };
  void add(const Point& point);
  const std::vector<Point>& points() const { return points_; }

 private:
  static constexpr std::size_t kMost = 512;
  std::vector<Point> points_;
  std::uint64_t every_ = 1, came_ = 0;
};

// The job as this process sees it.
struct JobStatus {
  struct Process {
    std::uint32_t rank = 0;
    std::string host;
    std::int32_t worker = -1, server = -1;  // its numbers; -1: it is none
    bool alive = true;
    bool operator==(const Process&) const = default;
  };
  std::uint32_t rank = 0;  // of this process
  std::uint64_t generation = 0;
  std::vector<Process> processes{};
  std::uint64_t bytes_sent = 0, bytes_received = 0;  // of this process
};

// The state of a run at one moment.
struct RunStatus {
  enum class State { kStarting, kTraining, kEnded };
  State state = State::kStarting;
  RunMetrics run;
  std::string role;  // "worker", "server", "both", or "" for a process alone
  std::int64_t iteration = 0, max_iter = 0;
  double seconds = 0;  // of the run, when the last record came
  double silent = 0;   // since then
  ClockSums total;     // of this worker, since it began
  ClockSums recent;    // of its last half minute
  std::optional<JobStatus> job;
  std::optional<ScoreMetrics::Presence> presence;     // on the chief
  std::vector<std::pair<std::string, Curve>> curves;  // "train/total_loss", "test0/accuracy" ...
  std::vector<FaultMetrics> faults;                   // the last ones
  std::uint32_t losses = 0;                           // of processes
  std::vector<PhaseMetrics> phases;
  std::string pace;                             // what ESync's state server shows, as JSON, or ""
  double last(const std::string& curve) const;  // its last value; NaN: it has none
};

// Functions may be called on any thread.
class StatusBoard final : public MetricsSink {
 public:
  StatusBoard(std::string role, std::int64_t max_iter);
  void begin(const RunMetrics& run);
  Status add(const MetricsRecord& record) override;
  void set_job(JobStatus job);
  void set_pace(std::string json);
  void end();
  RunStatus look() const;

 private:
  using Clock = std::chrono::steady_clock;
  void add_point(const std::string& curve, const Curve::Point& point) REQUIRES(mutex_);
  void add_clock(const ClockMetrics& clock) REQUIRES(mutex_);
  void add_score(const ScoreMetrics& score) REQUIRES(mutex_);
  void add_fault(const FaultMetrics& fault) REQUIRES(mutex_);

  mutable Mutex mutex_;
  RunStatus status_ GUARDED_BY(mutex_);
  ClockWindow window_ GUARDED_BY(mutex_){1};
  std::deque<ClockSums> windows_ GUARDED_BY(mutex_);  // of the last half minute
  Clock::time_point heard_ GUARDED_BY(mutex_) = Clock::now();
};

}  // namespace shoal
