// Shows how far training has come as one line at the bottom of a terminal, below the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "shoal/base/log.h"
#include "shoal/base/mutex.h"
#include "shoal/report/metrics.h"

namespace shoal {

// The numbers of a line. Those that are not known yet are left out.
struct BarNumbers {
  std::int64_t iteration = 0, max_iter = 0;
  double rate = 0;  // iterations a second
  std::optional<double> loss{}, test_accuracy{};
  std::optional<ScoreMetrics::Presence> presence{};
};
// Returns "[#####.....] 52 %  iteration 5200 of 10000, 310/s, loss 0.0123, 15 s left, 4 workers",
// cut to `width` columns.
std::string bar_line(const BarNumbers& numbers, std::size_t width);

class ProgressBar final : public MetricsSink, private google::LogSink {
 public:
  // Writes with `write`, by default to stderr.
  ProgressBar(std::int64_t max_iter, std::size_t width,
              std::function<void(const std::string&)> write = {});
  ~ProgressBar() override;  // clears the line
  Status add(const MetricsRecord& record) override;

 private:
  using Clock = std::chrono::steady_clock;
  void send(google::LogSeverity, const char*, const char*, int, const google::LogMessageTime&,
            const char*, std::size_t) override;
  void draw() REQUIRES(mutex_);

  Mutex mutex_;
  const std::size_t width_;
  const std::function<void(const std::string&)> write_;
  BarNumbers numbers_ GUARDED_BY(mutex_);
  bool shown_ GUARDED_BY(mutex_) = false;
  Clock::time_point drawn_ GUARDED_BY(mutex_){};
  std::optional<double> rate_since_ GUARDED_BY(mutex_);  // seconds of the run
  std::int64_t counted_ GUARDED_BY(mutex_) = 0;          // iterations since then
};

}  // namespace shoal
