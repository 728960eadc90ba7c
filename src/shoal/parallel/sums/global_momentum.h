// The momentum of a table that moves by means of deltas. Each worker works it out from the rows it
// reads, the same on all, and pushes its share of it with its delta: so the table adds up plain
// means, and nothing more is sent. With rate r, momentum b and mean delta d of a round
//   v = b v + d;  row += r v,  or, looking ahead (Nesterov's), row += r (b v + d)
// Sources: Hsu et al., "Measuring the effects of non-identical data distribution", 2019 (FedAvgM);
// Douillard et al., DiLoCo, 2023.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shoal/parallel/row_map.h"
#include "shoal/table/scheme.h"

namespace shoal {
class RunState;
}  // namespace shoal

namespace shoal::parallel {

// Adds numbers to the momentum of a param in a snapshot; reads those from `offset` on, or nothing
// where the snapshot has none at all. Throws ConfigError for one of another net.
void add_global_momentum(RunState& run, std::size_t param, std::span<const float> v);
void read_global_momentum(const RunState& run, const std::string& file, std::size_t param,
                          std::size_t offset, std::span<float> v);

class GlobalMomentum {
 public:
  GlobalMomentum(const table::Task& task, const RowMap& map);
  bool is_used() const { return task_.global_momentum > 0; }

  // Notes the row as a task begins with it.
  void begin(table::RowId row);
  // Ends the task. Turns `delta`, the change by this worker's steps, into the push with this
  // weight; with weight 0 nothing is pushed.
  void end(table::RowId row, float weight, std::span<float> delta);

  // Call both when all rows are here. take throws ConfigError for a snapshot of another net.
  void put(RunState& run);
  void take(const RunState& run, const std::string& file);

 private:
  void follow(table::RowId row);

  const table::Task task_;
  const RowMap& map_;
  std::vector<table::RowId> rows_;  // that have one
  // By row: v; the weights at the start of the last task.
  std::vector<std::vector<float>> v_, from_;
  // By row: a task has ended since the row was last followed.
  std::vector<bool> ended_;
};

}  // namespace shoal::parallel
