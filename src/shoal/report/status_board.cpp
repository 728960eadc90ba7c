#include "shoal/report/status_board.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/base/timer.h"

namespace shoal {
namespace {

constexpr std::size_t kWindows = 30, kMostFaults = 64, kMostPhases = 64, kMostCurves = 64;

void add_sums(ClockSums& sum, const ClockSums& more) {
  const double clocks = sum.clocks + more.clocks;
  const double seconds = sum.seconds + more.seconds;
  sum.add(more.sum);
  sum.clocks = clocks;
  sum.seconds = seconds;
}

}  // namespace

void Curve::add(const Point& point) {
  if (came_++ % every_ != 0) return;
  if (points_.size() == kMost) {
    for (std::size_t i = 0; 2 * i < points_.size(); ++i) points_[i] = points_[2 * i];
    points_.resize(kMost / 2);
    every_ *= 2;
  }
  points_.push_back(point);
}

double RunStatus::last(const std::string& curve) const {
  for (const auto& [name, values] : curves)
    if (name == curve && !values.points().empty()) return values.points().back().value;
  return std::numeric_limits<double>::quiet_NaN();
}

StatusBoard::StatusBoard(std::string role, std::int64_t max_iter) {
  status_.role = std::move(role);
  status_.max_iter = max_iter;
}

void StatusBoard::begin(const RunMetrics& run) {
  const MutexLock lock(mutex_);
  status_.run = run;
  status_.state = RunStatus::State::kTraining;
  heard_ = Clock::now();
}

void StatusBoard::end() {
  const MutexLock lock(mutex_);
  status_.state = RunStatus::State::kEnded;
}

void StatusBoard::set_job(JobStatus job) {
  const MutexLock lock(mutex_);
  status_.job = std::move(job);
}

void StatusBoard::set_pace(std::string json) {
  const MutexLock lock(mutex_);
  status_.pace = std::move(json);
}

Status StatusBoard::add(const MetricsRecord& record) {
  const MutexLock lock(mutex_);
  heard_ = Clock::now();
  std::visit([&](const auto& one) { status_.seconds = std::max(status_.seconds, one.time); },
             record);
  if (const auto* clock = std::get_if<ClockMetrics>(&record)) add_clock(*clock);
  if (const auto* score = std::get_if<ScoreMetrics>(&record)) add_score(*score);
  if (const auto* fault = std::get_if<FaultMetrics>(&record)) add_fault(*fault);
  if (const auto* phase = std::get_if<PhaseMetrics>(&record)) {
    status_.run.scheme = phase->scheme;
    if (status_.phases.size() < kMostPhases) status_.phases.push_back(*phase);
  }
  return {};
}

void StatusBoard::add_clock(const ClockMetrics& clock) {
  status_.iteration = clock.clock + 1;
  const std::optional<ClockSums> window = window_.add(clock);
  if (!window) return;
  add_sums(status_.total, *window);
  windows_.push_back(*window);
  if (windows_.size() > kWindows) windows_.pop_front();
  const auto point = [&](const char* name, double value) {
    add_point(name, {status_.iteration, clock.time, value});
  };
  point("speed/samples_per_second", window->sum.samples / window->seconds);
  if (const auto mean = mean_of(window->sum.pushes)) point("staleness/pushes", *mean);
  if (const auto mean = mean_of(window->sum.reads)) point("staleness/reads", *mean);
  if (window->sum.bytes_sent > 0)
    point("bytes/sent_per_second", static_cast<double>(window->sum.bytes_sent) / window->seconds);
}

void StatusBoard::add_score(const ScoreMetrics& score) {
  const bool is_test = score.kind == ScoreMetrics::Kind::kTest;
  const std::string group = is_test ? str("test", score.net, "/") : "train/";
  const auto point = [&](const std::string& name, double value) {
    add_point(name, {score.clock, score.time, value});
  };
  if (!is_test || score.loss != 0) point(group + "total_loss", score.loss);
  for (const auto& [name, value] : score.outputs) point(group + name, value);
  if (score.rate) point("rate/learning_rate", *score.rate);
  if (score.presence) status_.presence = score.presence;
}

// A fault may come again, when another process has come in the lost one's place.
void StatusBoard::add_fault(const FaultMetrics& fault) {
  status_.losses = std::max(status_.losses, fault.number);
  const auto known = std::ranges::find(status_.faults, fault.number, &FaultMetrics::number);
  if (known != status_.faults.end()) {
    *known = fault;
    return;
  }
  status_.faults.push_back(fault);
  if (status_.faults.size() > kMostFaults) status_.faults.erase(status_.faults.begin());
}

void StatusBoard::add_point(const std::string& curve, const Curve::Point& point) {
  if (!std::isfinite(point.value)) return;
  auto known = std::ranges::find(status_.curves, curve, &std::pair<std::string, Curve>::first);
  if (known == status_.curves.end()) {
    if (status_.curves.size() == kMostCurves) return;  // the net has more outputs than are shown
    known = status_.curves.insert(known, {curve, Curve()});
  }
  known->second.add(point);
}

RunStatus StatusBoard::look() const {
  const MutexLock lock(mutex_);
  RunStatus seen = status_;
  for (const ClockSums& window : windows_) add_sums(seen.recent, window);
  seen.silent = to_seconds(Clock::now() - heard_);
  return seen;
}

}  // namespace shoal
