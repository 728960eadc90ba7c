#include "shoal/parallel/roster.h"

#include <algorithm>

#include "shoal/parallel/plan.h"

namespace shoal::parallel {
namespace {

using Member = table::RosterBody::Process;

int count(const table::RosterBody& roster, std::int32_t Member::*number) {
  return static_cast<int>(std::ranges::count_if(
      roster.processes, [&](const Member& process) { return process.*number >= 0; }));
}

// A field of each process that has such a number, in their order.
template <class T>
std::vector<T> each(const table::RosterBody& roster, std::int32_t Member::*number,
                    T Member::*field) {
  std::vector<T> fields;
  for (const Member& process : roster.processes)
    if (process.*number >= 0) fields.push_back(process.*field);
  return fields;
}

}  // namespace

int workers_of(const table::RosterBody& roster) { return count(roster, &Member::worker); }
int servers_of(const table::RosterBody& roster) { return count(roster, &Member::server); }
bool is_alone(const table::RosterBody& roster) { return roster.processes.size() == 1; }

std::vector<std::uint32_t> ranks_of(const table::RosterBody& roster) {
  return each(roster, &Member::worker, &Member::rank);
}

std::vector<table::Clock> clocks_of(const table::RosterBody& roster) {
  return each(roster, &Member::worker, &Member::clock);
}

table::Plan plan_of(const Recipe& recipe, std::span<const table::Row> rows,
                    const table::RosterBody& roster, table::Clock start,
                    const std::vector<table::Clock>& clocks, const WorkerOptions& options) {
  table::Plan plan;
  plan.workers = static_cast<std::uint16_t>(workers_of(roster));
  plan.servers = static_cast<std::uint16_t>(servers_of(roster));
  plan.start = start;
  plan.rule = recipe.rule;
  plan.regularization = recipe.regularization;
  plan.weight_decay = recipe.weight_decay;
  plan.clip = recipe.clip;
  plan.iter_size = static_cast<std::uint32_t>(recipe.iter_size);
  plan.scheme = options.scheme;
  plan.generation = options.generation;
  plan.ranks = ranks_of(roster);
  plan.server_ranks = each(roster, &Member::server, &Member::rank);
  plan.clocks = clocks;
  if (!clocks.empty()) plan.start = std::ranges::min(clocks);
  plan.rows = std::vector<table::Row>(rows.begin(), rows.end());
  return plan;
}

}  // namespace shoal::parallel
