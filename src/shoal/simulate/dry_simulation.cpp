// Simulates a job without numbers: what each worker does is derived once from the net and the
// schemes.
#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "shoal/net/net.h"
#include "shoal/parallel/plan.h"
#include "shoal/parallel/row_map.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/compute_model.h"
#include "shoal/simulate/dry_worker.h"
#include "shoal/simulate/simulation_run.h"
#include "shoal/solver/recipe.h"
#include "shoal/table/scheme.h"

namespace shoal::simulate {
namespace {

using table::RowId;

// Returns the slices of a step. A layer's rows are pushed as soon as its gradients are complete if
// sent_early() says so.
std::vector<ComputeSlice> worker_slices(const Net& net, const parallel::RowMap& map,
                                        const ComputeSlices& shares,
                                        const std::function<bool(RowId)>& sent_early) {
  std::vector<ComputeSlice> slices = {{.needs = {}, .sends = {}, .share = shares.begin}};
  const int layers = static_cast<int>(net.layers().size());
  for (int i = 0; i < layers; ++i) {
    if (!shares.has_params[static_cast<std::size_t>(i)]) continue;
    const auto needed = map.needed_by(i);
    slices.push_back(
        {{needed.begin(), needed.end()}, {}, shares.forward[static_cast<std::size_t>(i)]});
  }
  for (int i = layers; i-- > 0;) {
    if (!shares.has_params[static_cast<std::size_t>(i)]) continue;
    ComputeSlice slice{{}, {}, shares.backward[static_cast<std::size_t>(i)]};
    for (const RowId row : map.owned_by(i))
      if (map.rows()[row].learns && sent_early(row)) slice.sends.push_back(row);
    slices.push_back(std::move(slice));
  }
  return slices;
}

// What the phases of a job are derived from.
struct JobInputs {
  const SolverParameter& param;
  const std::string& name;
  const SimulatedJob& simulated;
  const table::Servers& servers;
  Net& net;
};

DryPhase phase_of(const JobInputs& job, const std::string& words, table::Generation generation,
                  table::Clock start, table::Clock end) {
  const auto scheme = table::make_scheme(words);
  if (!scheme.ok()) throw ConfigError(scheme.error().code, job.name, ": ", scheme.error().message);
  if (const std::string unfit = scheme.value()->unfit(job.simulated.workers()); !unfit.empty())
    throw ConfigError(Code::kConfig, job.name, ": scheme '", words, "': ", unfit);
  DryPhase phase{.plan = {},
                 .task = scheme.value()->task(),
                 .bounded = scheme.value()->bounded(),
                 .slices = {},
                 .all = {},
                 .learning = {},
                 .rest = {},
                 .sample = {},
                 .end = end};
  const bool gradients = phase.task.contribution == table::ContributionKind::kGradient;
  const bool averages = phase.task.momentum == table::MomentumPolicy::kAverage;
  const auto local = gradients ? nullptr : make_local_updater(job.param, job.name, job.net);
  const parallel::RowMap map(
      job.net, job.servers,
      {.running_sums = !gradients,
       .histories = averages && local ? local->state().histories() : std::vector<Tensor*>(),
       .stays = gradients && parallel::is_alone(job.simulated.roster())});
  const Recipe recipe = read_recipe(job.param, job.name);
  phase.plan = parallel::plan_of(recipe, map.rows(), job.simulated.roster(), start, {},
                                 {.name = job.name, .scheme = words, .generation = generation});
  if (!gradients) phase.plan.clip = -1;  // each worker clips its own gradients
  phase.sample = parallel::sample_of(phase.plan.rows, phase.plan.servers);
  const LayerShares shares = shares_of(job.net, job.simulated.process_of(0).compute);
  const bool early =
      !phase.task.judged && (gradients || (recipe.clip < 0 && !phase.task.pull_first));
  const auto sent_early = [&](RowId row) {
    return early && (gradients || map.is_param(row) || map.is_history(row));
  };
  phase.slices = worker_slices(
      job.net, map,
      slices_of(job.net, shares, job.param.iter_size(), job.simulated.cluster().overlap),
      sent_early);
  phase.all.resize(map.rows().size());
  std::iota(phase.all.begin(), phase.all.end(), RowId{0});
  phase.learning = map.learning();
  std::ranges::remove_copy_if(phase.learning, std::back_inserter(phase.rest), sent_early);
  return phase;
}

JobPlan job_plan_of(const SolverParameter& param, const SimulationOptions& options,
                    const SimulatedJob& job, const std::vector<parallel::Phase>& phases) {
  Context context(Context::Options{.threads = 1, .share = {.client = 0, .clients = job.workers()}});
  Net net(train_net_of(param, options.name, context.share()), context);
  const table::Servers servers = servers_of(job.cluster(), options);
  JobPlan plan;
  table::Clock start = 0;
  for (const parallel::Phase& phase : phases) {
    const auto generation = static_cast<table::Generation>(plan.phases.size());
    plan.phases.push_back(phase_of({param, options.name, job, servers, net}, phase.words,
                                   generation, start, start + phase.iterations));
    start += phase.iterations;
    plan.asks = plan.asks || plan.phases.back().task.paced || plan.phases.back().task.judged ||
                generation > 0;
  }
  plan.items = static_cast<double>(batch_size(net)) * param.iter_size();
  std::uint32_t longest = 0;
  for (const DryPhase& phase : plan.phases)
    for (const table::Row& row : phase.plan.rows) longest = std::max(longest, row.length);
  plan.numbers.resize(longest);
  return plan;
}

class DrySimulation final : public SimulationRun {
 public:
  DrySimulation(const SolverParameter& param, const Cluster& cluster,
                const SimulationOptions& options, const std::function<void(const Point&)>& saw)
      : SimulationRun(param, cluster, options, true, saw),
        plan_(job_plan_of(param, options, job_, phases_)) {
    plan_.install(job_, plan_.phases[0]);
    for (int worker = 0; worker < job_.workers(); ++worker)
      workers_.push_back(std::make_unique<DryWorker>(job_, worker, plan_, tally_, options.seed));
  }

 private:
  void start_workers() override {
    for (const auto& worker : workers_) job_.time().at(Instant{}, [&worker] { worker->start(); });
  }
  bool has_ended(std::size_t i) const override { return workers_[i]->ended(); }
  WorkerFigures figures(std::size_t i) const override { return workers_[i]->figures(); }

  JobPlan plan_;
  std::vector<std::unique_ptr<DryWorker>> workers_;
};

}  // namespace

Result<Outcome> simulate_dry(const SolverParameter& param, const Cluster& cluster,
                             const SimulationOptions& options,
                             const std::function<void(const Point&)>& saw) {
  return DrySimulation(param, cluster, options, saw).run();
}

}  // namespace shoal::simulate
