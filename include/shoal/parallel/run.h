// Runs one worker's training from start to finish.
//
// A run is a chain of segments. In each a solver, an updater and a plan of the table belong
// together: a scheme, a number of workers, a share of the data. A segment ends with a phase, or
// where a worker requests the next (Action::kRegroup; coordinator/regrouping.h says which worker
// may, and how). At its end all workers are at a boundary and have the answers to all their pushes.
// The state that a snapshot would hold goes into memory. The coordinator assigns the parts and the
// scheme of the next generation (Table::regroup), the table takes a plan of it with the chief's
// numbers, and every worker builds its solver anew. So no update is lost or applied twice, and the
// first params of a segment are the last of the one before, bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/solver/solver.h"
#include "shoal/table/placement.h"
#include "shoal/table/table.h"
#include "shoal/tensor/context.h"

namespace shoal::parallel {

struct JobSpec;

// The options of the run's solvers, and the run's own. Of SolverOptions a run takes device,
// threads, action, observer and meter, and of `share` the replicas and the name of this process's
// part of the data. The table assigns the data share. The run sets the other options itself.
struct RunOptions : SolverOptions {
  // A .solverstate to continue from, or "". In a job only the chief's counts.
  std::string snapshot;
  // Returns it, in place of `snapshot`, on the chief alone.
  std::function<std::string()> find_snapshot{};
  // The devices of the replicas after the first. Empty: all use `device`.
  std::vector<const Device*> others{};
  // Called before the first solver is built, to compare settings between the processes. No member
  // of the team has begun.
  std::function<void(Team&, const Share&)> before;
  // Called when a phase of this scheme ("local" without a table) begins at this iteration. The
  // first call comes before `opened`.
  std::function<void(const std::string& scheme, std::int64_t iteration)> phase;
  // Called when a generation after the first begins, with whether this worker is its chief.
  std::function<void(bool)> leads;
  // Called with the first solver, before its first iteration, where the run goes on.
  std::function<void(Solver&)> opened;
  // Returns the records that all workers read in an epoch, for the log; 0: not known.
  std::function<std::uint64_t(const Share&)> records;
  // The files for the groups found, as MXNet-G writes them ("": none). profile_only: the run ends
  // once they are written.
  std::string groups_out, data_sharding_out;
  bool profile_only = false;
  bool explain_exchange = false;  // the log says how each layer's gradients travel, and why
  // Link bandwidth of each server of the first generation in bytes a second, equal on all workers;
  // empty: unknown, and then measured if the chief asks for it. A process that joins later gets it
  // from the roster. Unknown bandwidths count as equal.
  std::vector<double> bandwidths{};
  bool measure_servers = false;
  // If given, used instead of `bandwidths`, in a job whose servers do not change.
  std::optional<table::Servers> servers{};
  bool updates_beside = true;  // as WorkerOptions has it
  // Weights of the workers' shares of the data that all share, in the first generation, equal on
  // all workers. Empty: none are given.
  std::vector<double> weights{};
  // Wraps each updater that is made, for a phase with this solver.
  std::function<std::unique_ptr<Updater>(Net&, std::unique_ptr<Updater>, const SolverParameter&)>
      wrap;
};

// Trains as the solver says, in its phases, with the other workers of the table's job, or alone if
// there is no table. An error, returned or thrown (ConfigError), does not end the job for the
// others. On return the table no longer reads or writes this worker's memory.
Result<Ending> run(const JobSpec& spec, const RunOptions& options, table::Table* table);

}  // namespace shoal::parallel
