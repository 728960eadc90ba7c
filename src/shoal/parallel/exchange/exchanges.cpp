#include "shoal/parallel/exchange/exchanges.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/parallel/exchange/factor_exchange.h"
#include "shoal/parallel/job/plan.h"
#include "shoal/parallel/roster.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {

// Makes the table's exchange first: it makes the rows, and brings all params before anything is
// sent.
std::unique_ptr<Updater> make_exchanges(const TableSetup& setup) {
  const auto side = std::make_shared<TableSide>(setup);
  std::vector<std::unique_ptr<Exchange>> all;
  if (setup.scheme.contribution() != table::ContributionKind::kGradient) {
    all.push_back(setup.scheme.task.is_streamed() ? make_streaming_exchange(setup, side)
                                                  : make_local_steps_exchange(setup, side));
    return make_updater(std::move(all), side->policy(setup));
  }
  std::vector<Tensor*> histories;
  all.push_back(make_table_exchange(setup, side));
  if (std::ranges::count(setup.ways, Way::kFactors) > 0)
    all.push_back(std::make_unique<FactorExchange>(setup, side));
  if (std::ranges::any_of(setup.ways, is_collective)) all.push_back(make_sum_exchange(setup, side));
  for (std::size_t i = 1; i < all.size(); ++i) add_histories(all[i]->histories(), histories);
  side->map_rows(setup, {.histories = std::move(histories),
                         .stays = is_alone(setup.table.roster()),
                         .replicated = replicated_by(setup.ways)});
  return make_updater(std::move(all), side->policy(setup));
}

std::unique_ptr<Updater> make_table_updater(const SolverParameter& param, Net& net,
                                            table::Table& table, const WorkerOptions& options) {
  const auto scheme = options.maker(options.scheme);
  if (!scheme.ok())
    throw ConfigError(scheme.error().code, options.name, ": ", scheme.error().message);
  check_fit(param, options.name, *scheme.value(), workers_of(table.roster()));
  const JobSize job = job_size_of(table.roster(), net.context().share().replicas);
  const std::vector<LayerCodecs> codecs =
      choose_codecs(net, param, options.name, *scheme.value(), job.workers, options.rates);
  const std::vector<Way> ways = ways_of(
      net, choose_exchanges(net, param, options.name, *scheme.value(), job, options.rates, codecs));
  return make_exchanges({param, net, table, options, *scheme.value(), ways, codecs});
}

std::vector<std::uint16_t> servers_by_worker(const table::RosterBody& roster) {
  const int servers = servers_of(roster);
  std::vector<std::uint16_t> by_worker;
  for (const auto& process : roster.processes) {
    if (process.worker < 0) continue;
    const int server = process.server >= 0 ? process.server : process.worker % servers;
    by_worker.push_back(static_cast<std::uint16_t>(server));
  }
  return by_worker;
}

JobSize job_size_of(const table::RosterBody& roster, int replicas) {
  JobSize job{.workers = workers_of(roster), .servers = servers_of(roster), .replicas = replicas};
  job.apart = true;
  for (const auto& process : roster.processes) {
    if (process.worker < 0) continue;
    job.relays = job.relays || process.server < 0;
    job.apart = job.apart && process.server < 0;
  }
  const std::vector<std::uint16_t> servers = servers_by_worker(roster);
  for (const std::uint16_t server : servers)
    job.writers = std::max<std::int64_t>(job.writers, std::ranges::count(servers, server));
  return job;
}

table::Merge merge_of(const table::Scheme& scheme, table::Clock clock, float rate,
                      std::span<const float> weights) {
  std::vector<table::WorkerView> views(weights.size());
  std::vector<table::Contribution> held;
  for (std::size_t worker = 0; worker < weights.size(); ++worker) {
    views[worker] = {.pushed = clock + 1, .merged = clock, .last = clock};
    held.push_back({.worker = static_cast<int>(worker),
                    .clock = clock,
                    .base = clock,
                    .weight = weights[worker],
                    .rate = rate});
  }
  const std::optional<table::Merge> merge =
      scheme.next_merge({views, held, clock, clock + 1, clock});
  CHECK(merge) << "scheme '" << scheme.name() << "' does not take all gradients of a clock";
  return *merge;
}

void add_histories(const std::vector<Tensor*>& some, std::vector<Tensor*>& all) {
  all.resize(std::max(all.size(), some.size()));
  for (std::size_t i = 0; i < some.size(); ++i)
    if (some[i]) all[i] = some[i];
}

std::vector<Tensor*> with_histories(const Net& net, std::span<const std::size_t> params,
                                    const std::vector<Tensor*>& histories) {
  std::vector<Tensor*> all;
  for (const std::size_t p : params) {
    all.push_back(&net.params()[p].blob->data);
    for (std::size_t i = p; i < histories.size(); i += net.params().size())
      all.push_back(histories[i]);
  }
  return all;
}

LocalRule rule_of(const TableSetup& setup, const Layers& layers, Context& context) {
  return {read_recipe(setup.param, setup.options.name),
          setup.param.snapshot_diff() || setup.param.debug_info(), setup.net, context, layers};
}

Status check_finite(LocalRule& rule, const std::string& words) {
  if (const Gradients all = rule.gradients(); all.finite && std::isfinite(all.squares)) return {};
  return Error{
      Code::kNonFinite,
      words +
          " holds a NaN or an infinity: training diverges; lower base_lr or set clip_gradients"};
}

}  // namespace shoal::parallel
