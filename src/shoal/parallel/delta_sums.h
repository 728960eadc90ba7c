// The layers of which workers in lockstep sum what their local steps added (scheme local_steps),
// by a collective: each then moves its own copy of the params by the same mean.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shoal/parallel/bucket_sums.h"
#include "shoal/parallel/table_exchange.h"

namespace shoal {
class RunState;
}  // namespace shoal

namespace shoal::parallel {

// With from the params that a task begins with and d the mean of all workers' changes
//   params = from + global_rate d
// or, with a momentum b, as GlobalMomentum has it. Layers: those that go by a collective; calls on
// the solver's thread, destination apart.
class DeltaSums {
 public:
  explicit DeltaSums(const TableSetup& setup);

  bool owns(int layer) const { return layers_[layer]; }
  std::vector<table::Row> rows(table::RowId first) { return sums_.rows(first); }
  table::Destination destination(table::RowId row) const { return sums_.destination(row); }

  // Before a layer's first forward pass in a task: its params are those that all begin with.
  Status begin(int layer, table::Clock task, RowWaits& waits);
  // The params are what this worker came to: sends what it added. weight: as of a push. Once a task
  // and layer, in the order of backward.
  void send(int layer, float weight);
  // Sends the layers that were not sent in this task.
  void send_rest(float weight);
  void progress() { sums_.progress(); }
  // Waits for the sums of the last task and moves the params.
  Status apply_all(RowWaits& waits);

  // As Checkpointed has them, of the momentum. After apply_all().
  void put(RunState& run) const;
  void take(const RunState& run, const std::string& file);

 private:
  Status apply(std::size_t part, RowWaits& waits);
  void move(std::size_t param, std::span<const float> sum, float scale);

  const Layers layers_;
  const table::Task task_;
  Net& net_;
  BucketSums sums_;
  std::vector<bool> is_unsent_;               // by layer, in this task
  std::vector<std::vector<float>> from_, v_;  // by param
};

}  // namespace shoal::parallel
