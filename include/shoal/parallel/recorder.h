// Measures a worker's clocks and writes them down: metrics.jsonl, event files for TensorBoard,
// ESync's logs, and a line of the log for each display.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/report/esync_log.h"
#include "shoal/report/event_file.h"
#include "shoal/report/metrics.h"
#include "shoal/solver/meter.h"
#include "shoal/solver/observer.h"
#include "shoal/table/table.h"

namespace shoal {
class Solver;
class Net;
}  // namespace shoal

namespace shoal::parallel {

// Returns the names of a net's outputs, one for each number.
std::vector<std::string> output_columns(const Net& net);

struct RecorderOptions {
  std::string metrics;              // a folder, or "": none are written
  std::uint64_t metrics_limit = 0;  // bytes of each worker's, as in MetricsWriter
  // The job's folder, in which each worker has a folder of its own; or "".
  std::string esync_logs{};
  std::string tensorboard{};  // a folder for event files, or ""
  // Iterations between histograms of params and gradients in event files; 0: none.
  std::int64_t histograms_every = 0;
  std::vector<MetricsSink*> sinks{};  // others that receive all records
  // Called on the solver's thread when the run is known, and then about twice a second.
  std::function<void(const RunMetrics&)> began{};
  std::function<void()> tick{};
  RunMetrics run{};
  bool local_steps = false;  // of ESync's two kinds of logs, that with local steps
  std::int64_t display = 0;  // iterations between lines of the log; 0: none
};

class Recorder final : public Meter, public Observer {
 public:
  // `table` is null for a process that trains alone. `next` receives the same calls as this
  // observer; it may be null.
  Recorder(const RecorderOptions& options, const table::Table* table, Observer* next);
  // Opens the files for this solver, before its first iteration. Throws ConfigError (kUsage) if a
  // file cannot be written.
  void open(Solver& solver);
  // Writes the rest; on the chief of a job, also how useful its compute was. Returns the first
  // error since open(), kSnapshot.
  Status close();
  // Records a display or a test of another process. Call it after open().
  void record(const ScoreMetrics& score);
  // Sets the scheme from this iteration on. Before open(): the scheme of the run's first iteration.
  void phase(const std::string& scheme, std::int64_t iteration);

  void start(std::int64_t iteration, const Net& net) override;
  void mark(Mark mark, std::int64_t iteration, double data_waited, double rows_waited) override;
  void displayed(const Measured& row) override;
  void tested(int net, const Measured& row) override;

 private:
  using Instant = table::Instant;
  // The counters as they were when the clock, or a part of it, began.
  struct Point {
    Instant at{};
    double data = 0, rows = 0;
  };
  struct Counts {
    table::Traffic traffic;
    table::StalenessCounts staleness;
  };

  Instant now() const;
  double since_start(Instant at) const;
  Counts counts() const;
  void end_clock(std::int64_t iteration);
  void count(const Counts& now);
  void flush_round(const std::optional<Evaluation>& evaluation);
  void log_shares(std::int64_t iteration);
  void write_faults(const table::AccountBody& account, std::int64_t iteration);
  void write(const MetricsRecord& record);
  void write_histograms(std::int64_t iteration);
  void note(const char* flag, const Status& status);

  const RecorderOptions options_;
  const table::Table* const table_;
  Observer* const next_;
  std::vector<std::vector<std::string>> columns_;  // of the train net, then of the test nets
  double samples_ = 0;                             // of a step
  const Net* net_ = nullptr;                       // that is trained
  std::optional<MetricsWriter> writer_;
  std::unique_ptr<EventWriter> events_;
  std::optional<EsyncLog> esync_;
  std::optional<ClockMetrics> round_;  // not in ESync's log yet: a test may follow
  bool begun_ = false;                 // training, of which the phases are parts
  Instant started_{}, ended_{};        // training; the last clock
  Instant ticked_{};
  Point begin_, step_, passed_;
  // Seconds waited for others until the last iteration ended.
  std::optional<double> rows_before_;
  double waited_before_ = 0;  // of them between that and the present one
  Counts before_;
  std::string scheme_;  // as it was written down last
  ClockMetrics clock_;  // under way
  ClockMetrics shown_;  // sums since the last line of the log
  std::int64_t shown_at_ = 0;
  std::uint32_t faults_ = 0;  // that were written down
  Status failure_;            // the first: said once, and training goes on without
};

}  // namespace shoal::parallel
