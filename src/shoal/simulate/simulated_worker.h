// A worker of a simulated job that trains: a real solver on a thread of its own, in virtual time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/parallel/recorder.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/sim_thread.h"
#include "shoal/simulate/simulated_table.h"
#include "shoal/simulate/simulation.h"
#include "shoal/simulate/tally.h"

namespace shoal::simulate {

struct SimulatedWorkerOptions {
  SolverParameter param;
  std::string name;  // of the solver, for errors
  std::uint64_t seed = 1;
  // The files to write; its number of a worker is ignored.
  parallel::RecorderOptions record;
  table::Servers servers;
};

class SimulatedWorker {
 public:
  SimulatedWorker(SimulatedJob& job, int number, const SimulatedWorkerOptions& options,
                  ComputeSlots& slots, Tally& tally);
  ~SimulatedWorker();

  // ---- called by the scheduler ----
  void start();
  // Lets the worker go on until it computes, waits or ends.
  void resume() { thread_.resume(); }
  bool ended() const { return thread_.ended(); }
  // After the worker has ended.
  WorkerFigures figures() const;
  // Writes a score to the worker's metrics, if it has any.
  void record(const ScoreMetrics& score);
  // The values that forward passes change, running means for example, after the last iteration.
  const std::vector<float>& running_sums() const { return running_sums_; }

 private:
  class Timed;
  void run();
  Status train();

  SimulatedJob& job_;
  const int number_;
  const SimulatedWorkerOptions& options_;
  Tally& tally_;
  SimThread thread_;
  SimulatedTable table_;
  Random random_;
  std::size_t drawn_ = 0;  // iterations whose times were drawn
  std::int64_t iterations_ = 0;
  double samples_ = 0;
  double ended_at_ = 0;
  std::vector<float> running_sums_;
  std::optional<parallel::Recorder> recorder_;
  std::optional<std::vector<ScoreMetrics>> early_;  // scores from before the recorder was open
};

}  // namespace shoal::simulate
