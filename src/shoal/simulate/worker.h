// A worker of a simulated job: a real solver on a thread of its own, in virtual time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shoal/parallel/recorder.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulation.h"
#include "shoal/simulate/table.h"

namespace shoal::simulate {

// What workers have done, told in their turns.
struct Tally {
  double samples = 0;
  std::int64_t iterations = 0;
  double losses = 0;         // sum, since somebody took it
  std::int64_t counted = 0;  // in that
};

struct WorkerPlan {
  SolverParameter param;  // to train, and nothing else
  std::string name;
  std::uint64_t seed = 1;
  // what is written of it, where anything is; of worker 0
  parallel::RecorderOptions record;
  table::Servers servers;
};

// As the placement of rows knows them.
inline table::Servers servers_of(const Cluster& cluster, const SimulationOptions& options) {
  return options.by_time ? cluster.known_servers() : table::Servers(cluster.servers());
}

class SimulatedWorker {
 public:
  SimulatedWorker(SimulatedJob& job, int number, const WorkerPlan& plan, Desks& desks,
                  Tally& tally);
  ~SimulatedWorker();

  // ---- the scheduler ----
  void start();  // its thread, which waits for its turn
  Actor& actor() { return actor_; }
  bool ended() const { return actor_.ended(); }
  // After it ended:
  const Status& outcome() const { return outcome_; }
  double ended_at() const { return ended_at_; }
  const SimulatedTable::Times& times() const { return table_.times(); }
  std::int64_t iterations() const { return iterations_; }
  double samples() const { return samples_; }
  // Beside its clocks, where there is a file for them.
  void record(const ScoreMetrics& score);
  // What its forward passes changed, running means and the like, as of its last iteration.
  const std::vector<float>& running_sums() const { return running_sums_; }

 private:
  class Timed;
  void run();
  Status train();

  SimulatedJob& job_;
  const int number_;
  const WorkerPlan& plan_;
  Tally& tally_;
  Actor actor_;
  SimulatedTable table_;
  Random random_;
  std::size_t drawn_ = 0;  // of the times of iterations
  std::int64_t iterations_ = 0;
  double samples_ = 0;
  double ended_at_ = 0;
  Status outcome_;
  std::vector<float> running_sums_;
  std::optional<parallel::Recorder> recorder_;
  std::optional<std::vector<ScoreMetrics>> early_;  // that came before the recorder was open
  std::jthread thread_;
};

}  // namespace shoal::simulate
