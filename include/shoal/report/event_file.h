// Writes what a run measures as event files, which TensorBoard reads. docs/reference/metrics.md has
// the names of the curves.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "shoal/base/error.h"
#include "shoal/report/clock_sums.h"
#include "shoal/report/metrics.h"

namespace shoal {

namespace tensorboard {
class Event;
class Summary;
}  // namespace tensorboard

// Returns the folder of one worker's event files: "DIR", or "DIR/worker3" where there are several,
// which TensorBoard shows as a run each.
std::string event_directory(const std::string& directory, const RunMetrics& run);

class EventWriter final : public MetricsSink {
  struct Made {};  // open() alone makes one

 public:
  explicit EventWriter(Made) {}
  // Makes the folder and a file in it, beside those of before. TensorBoard forgets what these have
  // of steps from `first` on. `began` is when the run's time was 0, in seconds since 1970. Errors
  // are kUsage.
  static Result<std::unique_ptr<EventWriter>> open(const std::string& directory,
                                                   const RunMetrics& run, std::int64_t first,
                                                   double began);
  ~EventWriter() override;
  // Keeps clocks for a second of the run, and writes their means as one point; what else there is
  // is on the way to the disk when this returns. Errors are kSnapshot.
  Status add(const MetricsRecord& record) override;
  // Writes how the finite ones of these numbers are distributed, at `step`, `time` seconds into the
  // run.
  Status add_histogram(const std::string& tag, std::int64_t step, double time,
                       std::span<const float> numbers);
  // Writes the clocks that are kept.
  Status flush();

 private:
  Status add_clocks(const ClockSums& clocks);
  Status add_score(const ScoreMetrics& score);
  Status add_text(const char* tag, std::int64_t step, double time, const std::string& text);
  Status write(std::int64_t step, double time, const tensorboard::Summary& summary);
  Status write(const tensorboard::Event& event);

  std::string path_;
  std::ofstream file_;
  double began_ = 0;
  ClockWindow clocks_{1};
};

}  // namespace shoal
