#include "support/job.h"

#include <algorithm>
#include <cmath>

#include "shoal/parallel/replicas/replicas.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/config_error.h"
#include "support/schemes.h"
#include "support/solver_rig.h"

namespace shoal::test {
namespace {

// Runs one worker's part, from building its solver to the last call of `after`.
Status train_one(SolverParameter param, const JobShape& shape, int worker, table::Table* table,
                 JobResult& result) {
  if (shape.change) shape.change(worker, param);
  Updater* updater = nullptr;
  std::unique_ptr<Team> team = table ? parallel::make_table_team(*table) : nullptr;
  SolverOptions options;
  options.name = "job";
  options.share = {.client = worker,
                   .clients = std::max(1, shape.workers),
                   .replica = 0,
                   .replicas = shape.replicas};
  options.team = team.get();
  if (!shape.tuning.empty()) options.tuning = shape.tuning.at(static_cast<std::size_t>(worker));
  options.make_updater = [&](Net& net) {
    std::unique_ptr<Updater> made =
        table ? parallel::make_table_updater(
                    param, net, *table,
                    {.name = "job", .scheme = table::scheme_of(shape.scheme), .maker = shape.maker})
              : make_local_updater(param, "job", net);
    if (shape.replicas > 1) made = parallel::make_replicas(param, "job", net, {}, std::move(made));
    updater = made.get();
    return made;
  };
  Solver solver(param, options);
  const auto w = static_cast<std::size_t>(worker);
  const auto run = [&]() -> Status {
    if (shape.before) shape.before(worker, solver);
    for (const int stop : shape.stops) {
      while (solver.iteration() < stop) {
        if (const Result<Ending> ending = solver.step(1); !ending.ok()) return ending.error();
        result.losses[w].push_back(solver.last_loss());
      }
      if (Status status = updater->settle(Settle::kOwn); !status.ok()) return status;
      result.weights[w].push_back(all_params(solver.net()));
    }
    if (shape.after) shape.after(worker, solver);
    return {};
  };
  Status status = run();
  // Aborts before the params that the table writes to are gone.
  if (!status.ok() && table) table->abort(status.error());
  return status;
}

}  // namespace

bool JobResult::ok() const {
  return std::ranges::all_of(outcomes, [](const Status& status) { return status.ok(); });
}

std::string JobResult::why() const {
  const auto bad =
      std::ranges::find_if(outcomes, [](const Status& status) { return !status.ok(); });
  return bad == outcomes.end() ? "" : bad->error().message;
}

JobResult train(const SolverParameter& param, const JobShape& shape) {
  const auto members = static_cast<std::size_t>(std::max(1, shape.workers));
  JobResult result;
  result.weights.resize(members);
  result.losses.resize(members);
  if (shape.workers == 0) {
    result.outcomes = {train_one(param, shape, 0, nullptr, result)};
    return result;
  }
  const auto life = [&](int worker, table::Table& table) {
    Status status;
    try {
      status = train_one(param, shape, worker, &table, result);
    } catch (const ConfigError& error) {
      status = error.error();
    }
    if (status.ok() && shape.over_tcp) status = table.finish(shape.stops.back());
    return status;
  };
  result.outcomes = shape.over_tcp ? run_workers(shape.workers, shape.servers, life)
                                   : Job(shape.workers, shape.servers, shape.maker).run(life);
  return result;
}

double distance(const Weights& a, const Weights& b) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    apart += (double(a.at(i)) - b[i]) * (double(a.at(i)) - b[i]);
    size += double(b[i]) * b[i];
  }
  return std::sqrt(apart / size);
}

}  // namespace shoal::test
