// The worker's side of a table: an updater of the exchanges over its rows, and its team.
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
  std::uint8_t copies = 1;  // as in table::Plan, where all that workers exchange is rows of servers
  Rates rates{};            // from which the ways of exchange are chosen; the same on every worker
};

// Makes an updater of the net's layers over a table, of as many workers and servers as its roster
// names, by the exchanges that the solver asks for. The rows exist, with the chief's weights and
// histories, from the first settle() or begin() on. Params that copy_weights or a restore set
// before that count on the chief; on others they are overwritten.
//
// Gradients leave layer by layer while backward still runs, and the forward pass of a layer waits
// for that layer's rows alone. Under on_nan: SKIP, with debug_info, and where the scheme judges
// tasks, gradients leave after the last layer's backward: the iteration may yet be skipped, or its
// params are to be examined.
//
// Where the scheme takes deltas or weights, an iteration of the solver is a task of local steps.
// Its solver, clip, decay and momentum are this worker's own, and the rate is that of the
// iteration. Pushes leave in its last step layer by layer, as gradients would, or behind it where
// more than a layer's gradients decide (a clip, on_nan: SKIP, a judge). Values that forward passes
// change, running means and the like, always leave behind it. A snapshot has the chief's history,
// with which all go on. Memory: one copy of pushed rows; one more with pull_first; two more with
// global momentum.
//
// The table may write into the net's params until the updater was settled, or ended with an error.
// Throws ConfigError for options that exclude each other: clip_gradients with gradients of a scheme
// that is not lockstep, on_nan: SNAPSHOT or WARN, a scheme whose task makes no sense; and for an
// unknown scheme.
std::unique_ptr<Updater> make_table_updater(const SolverParameter& param, Net& net,
                                            table::Table& table, const WorkerOptions& options);

// Makes the solver's view of the other workers, over the same table. One exists at a time; the next
// is of a later plan, as the updater beside it.
std::unique_ptr<Team> make_table_team(table::Table& table, table::Generation generation = 0);

}  // namespace shoal::parallel
