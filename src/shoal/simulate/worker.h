// A worker of a simulated job: a real solver on a thread of its own, in virtual time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shoal/proto/solver.pb.h"
#include "shoal/solver/updater.h"
#include "table.h"

namespace shoal::simulate {

// What workers have done, told in their turns.
struct Tally {
  double samples = 0;
  std::int64_t iterations = 0;
  double losses = 0;                           // sum, since somebody took it
  std::int64_t counted = 0;                    // in that
};

// When an iteration's parts are computed, in parts of its time: after begin, after a layer's before_forward and its after_backward. Layers whose
// rows nobody sends have none of their own.
struct Segments {
  double begin = 0;
  std::vector<double> forward, backward;       // by layer
  std::vector<bool> acts;                      // by layer: the table has something to do at its hooks
};
Segments segments_of(const Net& net, const LayerShares& shares, int iter_size, bool overlap);

struct WorkerPlan {
  SolverParameter param;                       // to train, and nothing else
  std::string name, scheme;
  std::uint64_t seed = 1;
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
  double items_ = 0;                           // of one iteration
  std::int64_t iterations_ = 0;
  double ended_at_ = 0;
  Status outcome_;
  std::vector<float> running_sums_;
  std::jthread thread_;
};

}  // namespace shoal::simulate
