// A worker of a table: an updater of the exchanges over its rows, and its team.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "shoal/parallel/rates.h"
#include "shoal/parallel/roster.h"
#include "shoal/solver/exchange.h"
#include "shoal/solver/team.h"
#include "shoal/table/placement.h"
#include "shoal/table/scheme.h"
#include "shoal/table/table.h"

namespace shoal {
class SolverParameter;
}  // namespace shoal

namespace shoal::parallel {

struct WorkerOptions {
  std::string name = "solver";  // of the prototxt, for errors
  table::SchemeSpec scheme{};
  // The weight of this worker's gradients relative to others': its batch, where batches differ.
  float weight = 1;
  // The iteration at which this part of the run ends; where workers share iterations, the mean of
  // theirs.
  table::Clock until = 0;
  table::Generation generation = 0;  // of the plan: how many plans this table has had before
  table::SchemeMaker maker = &table::SchemeSpec::make;
  std::optional<table::Servers> servers{};  // as many as the roster's; nothing: all are alike
  // Params may be updated after a step on a thread beside the solver's. Otherwise they stay as the
  // step left them until the next.
  bool updates_beside = true;
  Rates rates{};  // from which the ways of exchange are chosen; the same on every worker
};

// An updater of the net's layers over a table, of as many workers and servers as its roster names,
// by the exchanges that the solver asks for. The rows exist, with the chief's weights and
// histories, from the first settle() or begin() on: what copy_weights or a restore did before that
// on the chief counts, on others it is overwritten.
//
// Gradients leave layer by layer while backward still runs, and the forward pass of a layer waits
// for that layer's rows alone. Under on_nan: SKIP, with debug_info, and where the scheme judges
// tasks, gradients leave after the last layer's backward: the iteration may yet be left out, or its
// params are to be looked at.
//
// Where the scheme takes deltas or weights, an iteration of the solver is a task of local steps.
// Its solver, clip, decay and momentum are this worker's own, and the rate is that of the
// iteration; what is pushed leaves in its last step layer by layer, where gradients would, or
// behind it where more than a layer's gradients decide (a clip, on_nan: SKIP, a judge); what
// forward passes change, running means and the like, always behind it. A snapshot has the chief's
// history, with which all go on. It needs a copy of what is pushed; another where an exchange goes
// on during a step; and two more for a momentum of the table's.
//
// The table may write into the net's params until the updater was settled, or ended with an error.
// Throws ConfigError for what cannot be had together: clip_gradients with gradients of a scheme
// that is not lockstep, on_nan: SNAPSHOT or WARN, a scheme whose task makes no sense; and for a
// scheme that is not known.
std::unique_ptr<Updater> make_table_updater(const SolverParameter& param, Net& net,
                                            table::Table& table, const WorkerOptions& options);

// The solver's view of the others, over the same table. One at a time; the next is of a later
// plan, as the updater beside it.
std::unique_ptr<Team> make_table_team(table::Table& table, table::Generation generation = 0);

}  // namespace shoal::parallel
