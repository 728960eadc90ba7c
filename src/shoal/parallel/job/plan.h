// Makes the plan of a table's rows for a solver, and checks that solver and scheme fit together.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "shoal/parallel/worker.h"
#include "shoal/solver/recipe.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {

table::Plan plan_of(const Recipe& recipe, std::span<const table::Row> rows,
                    const table::RosterBody& roster, table::Clock start,
                    const std::vector<table::Clock>& clocks, const WorkerOptions& options);
// Sets the rule by which the table itself moves rows by means of deltas, with the task's momentum.
void plan_momentum(const table::Task& task, table::Plan& plan);
// Returns how many servers have each row: 2 if a lost server's rows are to survive it. Throws
// ConfigError where the solver asks for what cannot be.
std::uint8_t copies_of(const SolverParameter& param, const std::string& name,
                       const table::RosterBody& roster);
// Throws ConfigError for options of the solver, the scheme and so many workers that exclude each
// other. `name` stands in front of it.
void check_fit(const SolverParameter& param, const std::string& name, const table::Scheme& scheme,
               int workers);

}  // namespace shoal::parallel
