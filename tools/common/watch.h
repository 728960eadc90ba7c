// Shows a run while it trains: a line on the terminal, and a page.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/job.h"
#include "common/progress_bar.h"
#include "shoal/report/metrics.h"
#include "shoal/report/status_board.h"
#include "shoal/status/server.h"
#include "shoal/table/table.h"

namespace shoal {

struct WatchOptions {
  std::string metrics;       // a folder, or ""
  int metrics_limit_mb = 0;  // of each worker's; 0: none
  std::string tensorboard;   // a folder, or ""
  int histograms_every = 0;  // iterations; 0: none
  std::string pace_json;     // a file for the rounds of esync, or ""
  bool bar = false;
  std::optional<StatusServerOptions> status{};
};

class Watch {
 public:
  // `role` as the page shows it; "": the process trains alone. Throws ConfigError (kUsage) if the
  // page's port cannot be listened on.
  Watch(const WatchOptions& options, std::string role, std::int64_t max_iter);
  ~Watch();
  // Returns what is to receive the run's metrics. A worker that is not the chief shows no bar.
  std::vector<MetricsSink*> sinks(bool chief);
  bool shows_bar() const { return options_.bar; }
  void begin(const RunMetrics& run);
  void set_rank(std::uint32_t rank) { rank_ = rank; }
  // Notes who is there. `table` is null in a server.
  void see(const table::RosterBody& roster, const table::Table* table);
  // Keeps what ESync's state server shows of a round. Called on one thread at a time.
  void see_pace(const std::string& json);

 private:
  const WatchOptions options_;
  const std::int64_t max_iter_;
  std::uint32_t rank_ = 0;
  StatusBoard board_;
  std::unique_ptr<StatusServer> server_;
  std::optional<ProgressBar> bar_;
  bool pace_failed_ = false;  // a file could not be written
};

}  // namespace shoal
