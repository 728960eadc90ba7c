// One worker's training, from its nets to its last word.
//
// A run is a chain of segments. In each a solver, an updater and a plan of the table belong
// together: a scheme, a number of workers, a share of the data. A segment ends with a phase, or
// where a worker wants the next (Action::kRegroup; coordinator/regrouping.h says who may, and how
// that comes about). At its end all workers are at a boundary and have heard of everything they
// pushed; what a snapshot would hold goes into memory, the coordinator says who is what in the next
// generation and in which scheme (Table::regroup), the table takes a plan of that with the chief's
// numbers, and every worker builds its solver anew. So nothing is lost and nothing applied twice,
// and the first params of a segment are the last of the one before, bit for bit.
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
// threads, action, observer and meter, and of share the replicas and the name of this process's
// part of the data, whose it is the table says; it sets the others itself.
struct RunOptions : SolverOptions {
  // a .solverstate to go on from, or ""; of a job the chief's counts
  std::string snapshot;
  // of the replicas but the first; empty: as `device`
  std::vector<const Device*> others{};
  // Before the first solver is built: what the processes compare. None of the team has begun.
  std::function<void(Team&, const Share&)> before;
  // A phase of this scheme ("local" without a table) begins at this iteration. The first time
  // before `opened`.
  std::function<void(const std::string& scheme, std::int64_t iteration)> phase;
  // The first solver, before its first iteration, where the run goes on.
  std::function<void(Solver&)> opened;
  // Records that all workers go through in an epoch, for the log; 0: not known.
  std::function<std::uint64_t(const Share&)> records;
  // Where MXNet-G's files of the groups that were found go ("": nowhere), and whether the run ends
  // when they are.
  std::string groups_out, data_sharding_out;
  bool profile_only = false;
  bool explain_exchange = false;  // the log says how each layer's gradients travel, and why
  // Link bandwidth of each server of the first generation in bytes a second, equal on all workers;
  // empty: unknown, and then measured if the chief asks for it. A process that joins later gets it
  // from the roster. Unknown bandwidths count as equal.
  std::vector<double> bandwidths{};
  bool measure_servers = false;
  // or these, whatever is said of them, of a job in which they stay
  std::optional<table::Servers> servers{};
  bool updates_beside = true;  // as WorkerOptions has it
  // Of each worker's share of what all share, in the first generation, equal on all workers; empty:
  // none are given.
  std::vector<double> weights{};
  // Puts an updater of its own round each that is made, for a phase in which the solver is this.
  std::function<std::unique_ptr<Updater>(Net&, std::unique_ptr<Updater>, const SolverParameter&)>
      wrap;
};

// Trains as the solver says, in its phases, with the others of the table's job, or alone if there
// is no table. An error, returned or thrown (ConfigError), has not ended the job for the others
// where it is thrown. When it returns the table looks at no memory of this worker's.
Result<Ending> run(const JobSpec& spec, const RunOptions& options, table::Table* table);

}  // namespace shoal::parallel
