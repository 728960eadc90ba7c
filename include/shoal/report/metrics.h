// Writes what every worker of a run did in each clock, and the values of displays and tests, as
// lines of JSON that grow while it runs: docs/reference/metrics.md is the format. All seconds are
// those of the clock that the caller measures by: the system's, or a simulation's.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shoal/base/error.h"

namespace shoal {

// A histogram counts how often a number was 0, 1, 2 ...; the last of its fixed number of classes
// stands for "or more".
using Histogram = std::vector<std::uint64_t>;

// The seconds of one step of a worker's own: of its one pass over its net, or in a scheme with
// local steps of one of them.
struct StepMetrics {
  double data_wait = 0, compute = 0;
  // Updating its own weights, or handing gradients over to be sent.
  double update = 0;
};

// One clock (task) of one worker. compute + data_wait + row_wait + update + other are the seconds
// since the clock before.
struct ClockMetrics {
  int worker = 0;
  std::int64_t clock = 0;  // finished before this one
  // Seconds from the start of training to the end of this clock.
  double time = 0;
  double compute = 0;    // seconds in forward and backward passes
  double data_wait = 0;  // in which they waited for data
  double row_wait = 0;   // in which they waited for rows, or for permission to begin
  double update = 0;     // at the updates, as in StepMetrics
  double other = 0;      // before the clock began: tests, snapshots, agreements
  // Seconds in which pushes were on their way out, while the above went on: not to be added to it.
  double send = 0;
  double receive = 0;  // in which rows were on their way in, likewise
  // Bytes on the wire of the worker's whole process, its server's part included.
  std::uint64_t bytes_sent = 0, bytes_received = 0;
  // The part of bytes_sent that went through memory to processes of this machine.
  std::uint64_t shared_bytes = 0;
  double samples = 0;
  std::uint64_t local_steps = 1;  // steps of the worker's solver
  std::uint64_t drops = 0;        // rows pushed and thrown away
  // Rows read, by the clocks that their reader was ahead of the slowest worker.
  Histogram reads{};
  // Rows pushed, by the versions that others made between the read and the merge of what was
  // computed from it.
  Histogram pushes{};
  std::vector<StepMetrics> steps{};  // for ESync's logs alone
};

// A display or a test of the whole job.
struct ScoreMetrics {
  enum class Kind { kDisplay, kTest };
  Kind kind = Kind::kDisplay;
  std::int64_t clock = 0;  // iterations done
  double time = 0;         // as in ClockMetrics
  int net = 0;             // of a test: which
  double loss = 0;
  std::optional<double> rate{};                           // of learning; of a display
  std::vector<std::pair<std::string, double>> outputs{};  // by name
  struct Presence {
    std::uint32_t alive = 0, taking_part = 0;  // processes; workers
    std::int64_t committed = 0;                // steps of all workers that are in the params
  };
  std::optional<Presence> presence{};  // in a job
};

// The loss of a process that the others went on without.
struct FaultMetrics {
  std::int64_t clock = 0;  // iterations done when this was written
  double time = 0;         // when the process was heard last, as in ClockMetrics
  std::uint32_t number = 0, rank = 0;
  std::string host{}, why{};
  std::optional<double> stopped{};  // seconds without progress; none: the job ended before
  std::optional<double> back{};     // seconds until another began in its place; none: no other did
  std::int64_t steps = 0;           // that were computed, and lost
};

// The compute of a job that has ended, in steps of all workers.
struct UsefulMetrics {
  std::int64_t clock = 0;  // iterations done
  double time = 0;
  std::int64_t in_params = 0, computed = 0;
  double possible = 0;       // had nothing failed
  std::uint32_t losses = 0;  // of processes
};

// Says that the clocks from here on are of another scheme than those before.
struct PhaseMetrics {
  std::int64_t clock = 0;  // the first of it
  double time = 0;         // as in ClockMetrics
  std::string scheme{};    // "ssp 2"
};

using MetricsRecord =
    std::variant<ClockMetrics, ScoreMetrics, PhaseMetrics, FaultMetrics, UsefulMetrics>;

// Keeps what a run measures of itself. Records come in their order, on one thread.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  // Returns why the record could not be kept.
  virtual Status add(const MetricsRecord& record) = 0;
};

// The description of the run in the first line.
struct RunMetrics {
  std::string name{};    // of the net
  std::string scheme{};  // "ssp 2", of the first phase; "local" without a table
  int worker = 0, workers = 1;
  bool simulated = false;  // time is virtual
};

// "DIR/metrics.3.jsonl"
std::string metrics_path(const std::string& directory, int worker);
// "DIR/metrics.3.jsonl.1": the lines before those of `path`, where a limit divides them.
std::string earlier_metrics_path(const std::string& path);

class MetricsWriter final : public MetricsSink {
 public:
  // Lines of an earlier run in the file are kept if they are of clocks before `first`, from which
  // this one goes on; so a run from 0 starts anew, and removes the files of workers beyond its own,
  // which are an earlier run's. Makes the folder. Errors are kUsage.
  // With a `limit`, in bytes, a file that would pass half of it is renamed to `path`.1, in place of
  // an earlier one of that name, and a new one begun; 0: none.
  static Result<MetricsWriter> open(const std::string& path, const RunMetrics& run,
                                    std::int64_t first, std::uint64_t limit = 0);
  // The record is on the way to the disk when this returns: a reader meanwhile sees whole lines.
  // Its time is added to those of the lines that were there.
  Status add(const MetricsRecord& record) override;

 private:
  Status write(const std::string& line);
  Status begin_another();
  std::string path_;
  RunMetrics run_;                      // with the scheme of the present phase
  std::uint64_t limit_ = 0, size_ = 0;  // bytes: of both files; of the present one
  std::ofstream file_;
  double seconds_before_ = 0;  // of the lines that were kept
};

// Returns the lines, without their ends. What is not finite is null.
std::string line_of(const RunMetrics& run);
std::string line_of(const ClockMetrics& clock);
std::string line_of(const ScoreMetrics& score);
std::string line_of(const PhaseMetrics& phase);
std::string line_of(const FaultMetrics& fault);
std::string line_of(const UsefulMetrics& useful);

}  // namespace shoal
