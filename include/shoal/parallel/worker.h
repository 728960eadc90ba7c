// The bridge: a solver whose params live in a table. Gradients leave layer by layer while backward still runs; the forward pass of a layer
// waits for that layer's rows alone.
#pragma once

#include <memory>

#include "shoal/solver/team.h"
#include "shoal/solver/updater.h"
#include "shoal/table/table.h"

namespace shoal {
class Net;
class SolverParameter;
}  // namespace shoal

namespace shoal::parallel {

struct WorkerOptions {
  std::string name = "solver";      // of the prototxt, for errors
  std::string scheme = "ssp 0";
  float weight = 1;                 // of this worker's gradients beside others': its batch, where batches differ
  int servers = 1;
};

// Seconds since the worker began, for its reports.
struct WorkerTimes { double rows = 0; };    // spent in waiting for rows

// An Updater over a table. Its rows exist, with the chief's weights, from the first begin() on: whatever copy_weights or restore did before
// that on the chief counts, on others it is overwritten.
class TableUpdater : public Updater {
 public:
  virtual WorkerTimes times() const = 0;
};
// Throws ConfigError for what cannot be had together: clip_gradients with a scheme that is not lockstep, on_nan: SNAPSHOT.
std::unique_ptr<TableUpdater> make_table_updater(const SolverParameter& param, Net& net, table::Table& table, const WorkerOptions& options);

// The solver's view of the others, over the same table.
std::unique_ptr<Team> make_table_team(table::Table& table, int workers);

}  // namespace shoal::parallel
