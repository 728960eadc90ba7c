// The bridge: a solver whose params live in a table. Gradients leave layer by layer while backward
// still runs; the forward pass of a layer waits for that layer's rows alone. Where the scheme takes
// deltas or weights, an iteration of the solver is a task of local steps.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/solver/team.h"
#include "shoal/solver/updater.h"
#include "shoal/table/placement.h"
#include "shoal/table/shard.h"
#include "shoal/table/table.h"

namespace shoal {
class Net;
class SolverParameter;
}  // namespace shoal

namespace shoal::parallel {

struct WorkerOptions {
  std::string name = "solver";  // of the prototxt, for errors
  std::string scheme = "ssp 0";
  // of this worker's gradients beside others': its batch, where batches differ
  float weight = 1;
  // the iteration at which this part of the run ends: where workers share iterations, of each on
  // average
  table::Clock until = 0;
  table::Generation generation = 0;  // of the plan: how many updaters this table has had before
  table::SchemeMaker maker = table::make_scheme;
  std::optional<table::Servers> servers{};  // as many as the roster's; nothing: all are alike
};

// Seconds since the worker began, for its reports.
struct WorkerTimes {
  double rows = 0;
};  // spent in waiting for rows

// An Updater over a table, of as many workers and servers as its roster names. Its rows exist, with
// the chief's weights and histories, from the first settle() or begin() on: whatever copy_weights
// or restore did before that on the chief counts, on others it is overwritten.
//
// Under on_nan: SKIP, with debug_info, and where the scheme judges tasks, gradients leave after the
// last layer's backward, not before: the iteration may yet be left out, or its params are to be
// looked at.
//
// Of a task of local steps: solver, clip, decay and momentum are this worker's own, and the rate is
// that of the iteration; what is pushed leaves in its last step layer by layer, where gradients
// would, or behind it where more than a layer's gradients decide (a clip, on_nan: SKIP, a judge);
// what forward passes change, running means and the like, always behind it. A snapshot has the
// chief's history, with which all go on. Needs a copy of what is pushed; another where an exchange
// goes on during a step; and two more for a momentum of the table's.
class TableUpdater : public Updater {
 public:
  virtual WorkerTimes times() const = 0;
};
// The table may write into the net's params until it was settled, or ended with an error. Throws
// ConfigError for what cannot be had together: clip_gradients with gradients of a scheme that is
// not lockstep, on_nan: SNAPSHOT or WARN, a scheme whose task makes no sense; and for a scheme that
// is not known.
std::unique_ptr<TableUpdater> make_table_updater(const SolverParameter& param, Net& net,
                                                 table::Table& table, const WorkerOptions& options);

// The solver's view of the others, over the same table. One at a time; the next is of a later
// generation, as the updater beside it.
std::unique_ptr<Team> make_table_team(table::Table& table, table::Generation generation = 0);

// How many of a job's processes are workers, and how many servers.
int workers_of(const table::RosterBody& roster);
int servers_of(const table::RosterBody& roster);
// The rank of each worker's process, and the iterations that it has behind it.
std::vector<std::uint32_t> ranks_of(const table::RosterBody& roster);
std::vector<table::Clock> clocks_of(const table::RosterBody& roster);
// The bandwidths of the servers' links, in their order, as the roster has them; none in its first
// generation, in which nobody has told it any.
std::vector<double> bandwidths_of(const table::RosterBody& roster);
// These servers with such bandwidths, bytes a second in their order (0: no limit; none at all:
// nothing is known). Where the fastest is less than a quarter faster than the slowest, they are
// taken to be alike.
table::Servers servers_of(const table::RosterBody& roster, const std::vector<double>& bandwidths);
// Whether there is one process, with the one worker and the one server in it: no row ever leaves
// it.
bool is_alone(const table::RosterBody& roster);

}  // namespace shoal::parallel
