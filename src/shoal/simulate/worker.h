// A worker of a simulated job: a real solver on a thread of its own, in virtual time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shoal/proto/solver.pb.h"
#include "shoal/report/metrics.h"
#include "table.h"

namespace shoal::simulate {

// What workers have done, told in their turns.
struct Tally {
  double samples = 0;
  std::int64_t iterations = 0;
  double losses = 0;                           // sum, since somebody took it
  std::int64_t counted = 0;                    // in that
};

struct WorkerPlan {
  SolverParameter param;                       // to train, and nothing else
  std::string name, scheme;
  std::uint64_t seed = 1;
  std::string out;                             // a folder for its metrics, or ""
};

class SimulatedWorker {
 public:
  SimulatedWorker(SimulatedJob& job, int number, const WorkerPlan& plan, Desks& desks, Tally& tally);
  ~SimulatedWorker();

  // ---- the scheduler ----
  void start();                                // its thread, which waits for its turn
  Actor& actor() { return actor_; }
  bool ended() const { return actor_.ended(); }
  // After it ended:
  const Status& outcome() const { return outcome_; }
  double ended_at() const { return ended_at_; }
  const SimulatedTable::Times& times() const { return table_.times(); }
  std::int64_t iterations() const { return iterations_; }
  double samples() const { return static_cast<double>(iterations_) * items_; }
  // Beside its clocks, where there are files for them.
  void add(const ScoreMetrics& score);
  // What its forward passes changed, running means and the like, as of its last iteration.
  const std::vector<float>& running_sums() const { return running_sums_; }

 private:
  class Timed;
  void run();
  Status train();
  void measure();

  SimulatedJob& job_;
  const int number_;
  const WorkerPlan& plan_;
  Tally& tally_;
  Actor actor_;
  SimulatedTable table_;
  Random random_;
  double items_ = 0;                           // of one iteration
  std::int64_t iterations_ = 0;
  double ended_at_ = 0;
  Status outcome_;
  std::vector<float> running_sums_;
  std::optional<MetricsWriter> metrics_;
  struct Measured { Instant time{}; table::Clock clock = 0; std::int64_t iterations = 0; SimulatedTable::Times times; table::Traffic traffic; };
  Measured measured_;                          // as of the last clock
  std::jthread thread_;
};

}  // namespace shoal::simulate
