// What the updaters over a table share, and who makes them.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "shoal/parallel/row_map.h"
#include "shoal/parallel/worker.h"
#include "shoal/solver/recipe.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {

// For gradients: one a task, and the rule is the servers'.
std::unique_ptr<TableUpdater> make_gradient_updater(const SolverParameter& param, Net& net,
                                                    table::Table& table,
                                                    const WorkerOptions& options,
                                                    const table::Scheme& scheme);
// For deltas and weights: a task is some iterations of a solver of this worker's own.
std::unique_ptr<TableUpdater> make_local_steps_updater(const SolverParameter& param, Net& net,
                                                       table::Table& table,
                                                       const WorkerOptions& options,
                                                       const table::Scheme& scheme);

inline constexpr table::Part kHistoryParts[] = {table::Part::kHistory, table::Part::kHistory2};
static_assert(std::size(kHistoryParts) == optim::kMaxHistories);

table::Plan plan_of(const Recipe& recipe, std::span<const table::Row> rows,
                    const table::RosterBody& roster, table::Clock start,
                    const std::vector<table::Clock>& clocks, const WorkerOptions& options);
// Throws ConfigError for what cannot be had together, of the solver, the scheme (`words` are the
// user's) and so many workers. `name` stands in front of it.
void check_fit(const SolverParameter& param, const std::string& name, const table::Scheme& scheme,
               const std::string& words, int workers);

// Waits for rows, and knows how long it did.
class Waits {
 public:
  explicit Waits(table::Table& table) : table_(table) {}
  Status wait(std::span<const table::RowId> rows) {
    const table::Instant start = table_.now();
    Status status = table_.wait(rows);
    total_ += table_.now() - start;
    return status;
  }
  table::Instant total() const { return total_; }
  double seconds() const { return std::chrono::duration<double>(total_).count(); }

 private:
  table::Table& table_;
  table::Instant total_{};
};

}  // namespace shoal::parallel
