// Jobs without numbers: what a worker does is read off its net and scheme, once for all.
#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "shoal/base/text.h"
#include "shoal/net/net.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/parallel/updaters.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/dry_worker.h"
#include "shoal/simulate/segmented.h"
#include "shoal/simulate/simulation.h"
#include "shoal/solver/recipe.h"
#include "shoal/table/scheme.h"

namespace shoal::simulate {
namespace {

using table::RowId;

// What a layer has learned leaves as soon as the solver has it, where `leaves` says so.
std::vector<Stretch> stretches_of(const Net& net, const parallel::RowMap& map,
                                  const Segments& segments,
                                  const std::function<bool(RowId)>& leaves) {
  std::vector<Stretch> stretches = {{.needs = {}, .sends = {}, .share = segments.begin}};
  const int layers = static_cast<int>(net.layers().size());
  for (int i = 0; i < layers; ++i) {
    if (!segments.acts[static_cast<std::size_t>(i)]) continue;
    const auto needed = map.needed_by(i);
    stretches.push_back(
        {{needed.begin(), needed.end()}, {}, segments.forward[static_cast<std::size_t>(i)]});
  }
  for (int i = layers; i-- > 0;) {
    if (!segments.acts[static_cast<std::size_t>(i)]) continue;
    Stretch stretch{
        .needs = {}, .sends = {}, .share = segments.backward[static_cast<std::size_t>(i)]};
    for (const RowId row : map.owned_by(i))
      if (map.rows()[row].learns && leaves(row)) stretch.sends.push_back(row);
    stretches.push_back(std::move(stretch));
  }
  return stretches;
}

// What scripts are made of.
struct Making {
  const SolverParameter& param;
  const std::string& name;
  const SimulatedJob& job;
  const table::Servers& servers;
  Net& net;
};

DryPhase phase_of(const Making& making, const std::string& words, table::Epoch epoch,
                  table::Clock start, table::Clock end) {
  const auto scheme = table::make_scheme(words);
  if (!scheme.ok())
    throw ConfigError(scheme.error().code, making.name, ": ", scheme.error().message);
  if (const std::string unfit = scheme.value()->unfit(making.job.workers()); !unfit.empty())
    throw ConfigError(Code::kConfig, making.name, ": scheme '", words, "': ", unfit);
  DryPhase phase{.plan = {},
                 .task = scheme.value()->task(),
                 .bounded = scheme.value()->bounded(),
                 .stretches = {},
                 .all = {},
                 .learning = {},
                 .rest = {},
                 .sample = {},
                 .end = end};
  const bool gradients = phase.task.payload == table::Payload::kGradient,
             averages = phase.task.momentum == table::MomentumPolicy::kAverage;
  const auto local =
      gradients ? nullptr : make_local_updater(making.param, making.name, making.net);
  const parallel::RowMap map(
      making.net, making.servers,
      {.running_sums = !gradients,
       .histories = averages && local ? local->histories() : std::vector<Tensor*>(),
       .stays = gradients && parallel::is_alone(making.job.roster())});
  const Recipe recipe = read_recipe(making.param, making.name);
  phase.plan = parallel::plan_of(recipe, map.rows(), making.job.roster(), start, {},
                                 {.name = making.name, .scheme = words, .epoch = epoch});
  if (!gradients) phase.plan.clip = -1;  // each worker clips its own
  phase.sample = parallel::sample_of(phase.plan.rows, phase.plan.servers);
  const LayerShares shares = shares_of(making.net, making.job.process_of(0).compute);
  const bool early =
      !phase.task.judged && (gradients || (recipe.clip < 0 && !phase.task.pull_first));
  const auto leaves = [&](RowId row) {
    return early && (gradients || map.is_param(row) || map.is_history(row));
  };
  phase.stretches = stretches_of(
      making.net, map,
      segments_of(making.net, shares, making.param.iter_size(), making.job.cluster().overlap),
      leaves);
  phase.all.resize(map.rows().size());
  std::iota(phase.all.begin(), phase.all.end(), RowId{0});
  phase.learning = map.learning();
  std::ranges::remove_copy_if(phase.learning, std::back_inserter(phase.rest), leaves);
  return phase;
}

Script script_of(const SolverParameter& param, const SimulationOptions& options,
                 const SimulatedJob& job, const std::vector<parallel::Phase>& phases) {
  Context context(Context::Options{.threads = 1, .share = {.client = 0, .clients = job.workers()}});
  Net net(train_net_of(param, options.name, context.share()), context);
  const table::Servers servers = servers_of(job.cluster(), options);
  Script script;
  table::Clock start = 0;
  for (const parallel::Phase& phase : phases) {
    const auto epoch = static_cast<table::Epoch>(script.phases.size());
    script.phases.push_back(phase_of({param, options.name, job, servers, net}, phase.words, epoch,
                                     start, start + phase.iterations));
    start += phase.iterations;
    script.asks = script.asks || script.phases.back().task.paced ||
                  script.phases.back().task.judged || epoch > 0;
  }
  script.items = static_cast<double>(batch_size(net)) * param.iter_size();
  std::uint32_t longest = 0;
  for (const DryPhase& phase : script.phases)
    for (const table::Row& row : phase.plan.rows) longest = std::max(longest, row.length);
  script.numbers.resize(longest);
  return script;
}

class DrySimulation {
 public:
  DrySimulation(const SolverParameter& param, const Cluster& cluster,
                const SimulationOptions& options, const std::function<void(const Point&)>& saw)
      : options_(options),
        saw_(saw),
        phases_(or_throw(parallel::phases_of(param, options.name))),
        job_(cluster, {.seed = options.seed, .dry = true, .scheme = phases_[0].words}),
        script_(script_of(param, options, job_, phases_)) {
    plant(job_, script_, script_.phases[0]);
    for (int worker = 0; worker < job_.workers(); ++worker)
      workers_.push_back(std::make_unique<DryWorker>(job_, worker, script_, tally_, options.seed));
  }

  Result<Outcome> run() {
    if (job_.error()) return *job_.error();
    for (const auto& worker : workers_) job_.time().at(Instant{}, [&worker] { worker->start(); });
    if (options_.test_every > 0) keep_noting();
    std::string ending;
    while (ending.empty()) {
      if (!job_.time().step())
        return Error{
            Code::kInternal,
            "the simulated job stands still: nobody has anything to do, and not all are done"};
      if (job_.error()) return *job_.error();
      if (options_.seconds > 0 && job_.time().now() >= to_instant(options_.seconds))
        ending = str(options_.seconds, " virtual seconds are over");
      else if (options_.samples > 0 && tally_.samples >= options_.samples)
        ending = str(tally_.samples, " samples are done");
      else if (options_.updates > 0 && updates() >= options_.updates)
        ending = str(options_.updates, " updates are done");
      else if (all_ended())
        ending = "all workers have done their iterations";
    }
    note();
    Outcome outcome;
    outcome.ending = ending;
    std::vector<std::string> schemes;
    for (const parallel::Phase& phase : phases_) schemes.push_back(phase.words);
    outcome.scheme = join(schemes, ", then ");
    outcome.seconds = to_seconds(job_.time().now());
    outcome.points = points_;
    for (const auto& worker : workers_) outcome.workers.push_back(worker->figures());
    outcome.traffic = job_.all_traffic();
    outcome.counters = job_.counters();
    outcome.version_staleness = job_.version_staleness();
    return outcome;
  }

 private:
  // Asked after every event: the first that has not ended is remembered.
  bool all_ended() {
    while (done_ < workers_.size() && workers_[done_]->ended()) ++done_;
    return done_ == workers_.size();
  }

  std::int64_t updates() {
    const table::Plan& plan = *job_.shard(0).plan();
    for (RowId row = 0; row < plan.rows.size(); ++row)
      if (plan.rows[row].learns)
        return job_.shard(plan.rows[row].server).version_of(row).value_or(0);
    return 0;
  }

  void keep_noting() {
    note();
    if (!job_.time().is_idle())
      job_.time().after(to_instant(options_.test_every), [this] { keep_noting(); });
  }

  void note() {
    Point point;
    point.seconds = to_seconds(job_.time().now());
    point.updates = updates();
    point.iterations = tally_.iterations;
    point.samples = tally_.samples;
    if (!points_.empty() && point.seconds > points_.back().seconds)
      point.samples_per_second =
          (point.samples - points_.back().samples) / (point.seconds - points_.back().seconds);
    point.bytes = static_cast<double>(job_.all_traffic().bytes_sent);
    points_.push_back(point);
    if (saw_) saw_(point);
  }

  const SimulationOptions options_;
  const std::function<void(const Point&)>& saw_;
  const std::vector<parallel::Phase> phases_;
  SimulatedJob job_;
  Script script_;
  Tally tally_;
  std::vector<std::unique_ptr<DryWorker>> workers_;
  std::size_t done_ = 0;
  std::vector<Point> points_;
};

}  // namespace

Result<Outcome> simulate_dry(const SolverParameter& param, const Cluster& cluster,
                             const SimulationOptions& options,
                             const std::function<void(const Point&)>& saw) {
  return DrySimulation(param, cluster, options, saw).run();
}

}  // namespace shoal::simulate
