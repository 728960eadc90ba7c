#include "shoal/parallel/roster.h"

#include <algorithm>

#include "shoal/parallel/job/plan.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {
namespace {

using Member = table::RosterBody::Process;

int count(const table::RosterBody& roster, std::int32_t Member::*number) {
  return static_cast<int>(std::ranges::count_if(
      roster.processes, [&](const Member& process) { return process.*number >= 0; }));
}

// Returns a field of each process that has such a number, in their order.
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

std::vector<double> bandwidths_of(const table::RosterBody& roster) {
  return roster.generation > 0 ? each(roster, &Member::server, &Member::bandwidth)
                               : std::vector<double>();
}

table::Servers servers_of(const table::RosterBody& roster, const std::vector<double>& bandwidths) {
  constexpr double kAlike = 1.25;
  std::vector<double> known = bandwidths;
  std::erase_if(known, [](double bandwidth) { return !(bandwidth > 0); });
  if (known.empty()) return servers_of(roster);
  const auto [slowest, swiftest] = std::ranges::minmax(known);
  if (known.size() == bandwidths.size() && swiftest < kAlike * slowest) return servers_of(roster);
  const std::vector<std::int32_t> workers = each(roster, &Member::server, &Member::worker);
  std::vector<table::ServerSpeed> speeds;
  for (std::size_t server = 0; server < bandwidths.size(); ++server)
    speeds.push_back({.bandwidth = bandwidths[server], .has_worker = workers[server] >= 0});
  return {std::move(speeds), workers_of(roster)};
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
  plan.copies = options.copies;
  if (!clocks.empty()) plan.start = std::ranges::min(clocks);
  plan.rows = std::vector<table::Row>(rows.begin(), rows.end());
  return plan;
}

void plan_momentum(const table::Task& task, table::Plan& plan) {
  plan.rule = {.rule = task.global_nesterov ? optim::Rule::kNesterov : optim::Rule::kSgd,
               .momentum = task.global_momentum};
  plan.weight_decay = 0;
  plan.iter_size = 1;
  // The rates of params are in the deltas already.
  for (table::Row& row : plan.rows.edit())
    if (row.lr_mult != 0) row.lr_mult = 1;
}

std::uint8_t copies_of(const SolverParameter& param, const std::string& name,
                       const table::RosterBody& roster) {
  constexpr std::size_t kManyProcesses = 4;
  if (param.has_copies() && (param.copies() < 1 || param.copies() > 2))
    throw ConfigError(Code::kConfig, name, ": copies is ", param.copies(), "; it must be 1 or 2");
  // Processes that have left count: a job does not lose its copies with its first process.
  const bool usual =
      param.on_lost() == OnLost::CONTINUE && roster.processes.size() >= kManyProcesses;
  const bool two = param.has_copies() ? param.copies() == 2 : usual;
  return two && servers_of(roster) > 1 ? 2 : 1;
}

}  // namespace shoal::parallel
