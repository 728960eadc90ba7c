// Jobs without numbers: workers are lists of what they wait for, send and compute, with the real client, shards, scheme and coordinator.
#include <algorithm>
#include <numeric>
#include <utility>

#include "client_end.h"
#include "segmented.h"
#include "shoal/net/net.h"
#include "shoal/parallel/row_map.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulation.h"
#include "shoal/solver/recipe.h"
#include "shoal/table/scheme.h"
#include "worker.h"

namespace shoal::simulate {
namespace {

using table::Clock;
using table::RowId;

// One stretch of a task: what must be here before it, what is sent when it begins, and its part of an iteration's time.
struct Stretch {
  std::vector<RowId> needs, sends;
  double share = 0;
};

// What all workers do.
struct Script {
  table::Plan plan;
  table::Task task;
  std::vector<Stretch> stretches;
  std::vector<RowId> all;
  Clock tasks = 0;
  double items = 0;                            // of an iteration
  std::vector<float> numbers;                  // the longest row's, which nobody looks at
};

double items_of(const Net& net, int iter_size) {
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i)
    if (net.bottoms(i).empty() && !net.tops(i).empty() && net.tops(i)[0]->shape().axes() > 0) return static_cast<double>(net.tops(i)[0]->shape()[0] * iter_size);
  return 0;
}

table::Plan plan_of(const SolverParameter& param, const std::string& name, const SimulatedJob& job, const std::string& scheme, const parallel::RowMap& map) {
  const Recipe recipe = read_recipe(param, name);
  table::Plan plan;
  plan.workers = static_cast<std::uint16_t>(job.workers());
  plan.servers = static_cast<std::uint16_t>(job.servers());
  plan.rule = recipe.rule;
  plan.regularization = recipe.regularization;
  plan.weight_decay = recipe.weight_decay;
  plan.clip = recipe.clip;
  plan.iter_size = static_cast<std::uint32_t>(recipe.iter_size);
  plan.scheme = scheme;
  plan.rows.assign(map.rows().begin(), map.rows().end());
  return plan;
}

// Of gradients, layer by layer as a solver has them; of what a worker's own steps make of the weights, all at the end of the last.
std::vector<Stretch> stretches_of(const Net& net, const parallel::RowMap& map, const Segments& segments, const table::Task& task) {
  std::vector<Stretch> stretches = {{.needs = {}, .sends = {}, .share = segments.begin}};
  const int layers = static_cast<int>(net.layers().size());
  const bool at_once = task.payload != table::Payload::kGradient;
  for (int i = 0; i < layers; ++i) {
    if (!segments.acts[static_cast<std::size_t>(i)]) continue;
    const auto needed = map.needed_by(i);
    stretches.push_back({{needed.begin(), needed.end()}, {}, segments.forward[static_cast<std::size_t>(i)]});
  }
  Stretch end;
  for (int i = layers; i-- > 0;) {
    if (!segments.acts[static_cast<std::size_t>(i)]) continue;
    Stretch stretch{.needs = {}, .sends = {}, .share = segments.backward[static_cast<std::size_t>(i)]};
    for (const RowId row : map.owned_by(i))
      if (map.rows()[row].learns) (at_once ? end : stretch).sends.push_back(row);
    stretches.push_back(std::move(stretch));
  }
  if (at_once) {
    stretches.back().share += task.steps - 1;
    stretches.push_back(std::move(end));
  }
  return stretches;
}

Script script_of(const SolverParameter& param, const SimulationOptions& options, const SimulatedJob& job, const Compute& compute) {
  const auto scheme = table::make_scheme(options.scheme);
  if (!scheme.ok()) throw ConfigError(scheme.error().code, options.name, ": ", scheme.error().message);
  const table::Task task = scheme.value()->task();
  if (task.paced || task.judged || task.steps == 0)
    throw ConfigError(Code::kConfig, options.name, ": scheme '", options.scheme, "' decides on tasks as they go, which is not simulated without numbers");
  Context context(Context::Options{.threads = 1, .share = {.client = 0, .clients = job.workers()}});
  Net net(train_net_of(param, options.name, context.share()), context);
  const parallel::RowMap map(net, job.servers());
  Script script;
  script.plan = plan_of(param, options.name, job, options.scheme, map);
  script.task = task;
  script.stretches = stretches_of(net, map, segments_of(net, shares_of(net, compute), param.iter_size(), job.cluster().overlap), task);
  script.all.resize(map.rows().size());
  std::iota(script.all.begin(), script.all.end(), RowId{0});
  script.tasks = param.max_iter() / task.steps;
  script.items = items_of(net, param.iter_size());
  script.numbers.resize(std::ranges::max(script.plan.rows, {}, &table::Row::length).length);
  return script;
}

class DryWorker final : public ClientEnd {
 public:
  DryWorker(SimulatedJob& job, int number, Script& script, Tally& tally, std::uint64_t seed)
      : ClientEnd(job, number), script_(script), tally_(tally), compute_(job.process_of(number).compute), random_(seed, static_cast<std::uint64_t>(number)) {}

  void start() {
    open(script_.plan, [this](RowId row, table::Part) { return std::span<float>(script_.numbers).first(script_.plan.rows[row].length); });
    for (const RowId row : script_.all) get_row(row, 0, table::Part::kWeights);
    begin(0);
  }
  bool ended() const { return ended_; }
  WorkerFigures figures() const {
    return {.iterations = clock_ * script_.task.steps, .samples = static_cast<double>(clock_ * script_.task.steps) * script_.items, .seconds = to_seconds(ended_at_),
            .compute = computed_, .rows = waited_, .others = 0, .traffic = job_.traffic(worker_)};
  }

 private:
  void heard(const table::Message&) override {}

  void begin(std::size_t at) {
    if (at == script_.stretches.size()) return end_task();
    if (at == 0) seconds_ = compute_.draw(drawn_++, random_);
    at_ = at;
    since_ = now();
    if (!await(script_.stretches[at].needs)) go();
  }

  void all_arrived() override {
    waited_ += to_seconds(now() - since_);
    if (at_ == script_.stretches.size()) retire();
    else go();
  }

  void go() {
    const Stretch& stretch = script_.stretches[at_];
    for (const RowId row : stretch.sends)
      push_row({.row = row, .clock = clock_, .payload = script_.task.payload, .weight = 1, .rate = 1,
                .values = {std::span<const float>(script_.numbers).first(script_.plan.rows[row].length), nullptr}});
    if (stretch.share == 0) return begin(at_ + 1);
    const Instant until = compute_.done(now(), seconds_ * stretch.share);
    computed_ += to_seconds(until - now());
    job_.time().at(until, [this] { begin(at_ + 1); });
  }

  void end_task() {
    ++clock_;
    tally_.iterations += script_.task.steps;
    tally_.samples += script_.task.steps * script_.items;
    if (clock_ < script_.tasks) return begin(0);
    at_ = script_.stretches.size();
    since_ = now();
    if (!await(script_.all)) retire();
  }

  void retire() {
    for (int server = 0; server < job_.servers(); ++server) job_.send(worker_, server, table::Retire{.clock = clock_});
    ended_ = true;
    ended_at_ = now();
    close();
  }

  Script& script_;
  Tally& tally_;
  const Compute& compute_;
  Random random_;
  std::size_t at_ = 0, drawn_ = 0;
  Clock clock_ = 0;
  double seconds_ = 0, computed_ = 0, waited_ = 0;
  Instant since_{}, ended_at_{};
  bool ended_ = false;
};

class DrySimulation {
 public:
  DrySimulation(const SolverParameter& param, const Cluster& cluster, const SimulationOptions& options, const std::function<void(const Point&)>& saw)
      : options_(options), saw_(saw), job_(cluster, {.seed = options.seed, .dry = true, .scheme = {}}),   // that has no pacer
        script_(script_of(param, options, job_, job_.process_of(0).compute)) {
    job_.plant(script_.plan, [this](RowId row, table::Part part) {
      return part == table::Part::kWeights ? std::span<const float>(script_.numbers).first(script_.plan.rows[row].length) : std::span<const float>();
    });
    for (int worker = 0; worker < job_.workers(); ++worker)
      workers_.push_back(std::make_unique<DryWorker>(job_, worker, script_, tally_, options.seed));
  }

  Result<Outcome> run() {
    if (job_.error()) return *job_.error();
    for (const auto& worker : workers_) job_.time().at(Instant{}, [&worker] { worker->start(); });
    if (options_.test_every > 0) keep_noting();
    std::string ending;
    while (ending.empty()) {
      if (!job_.time().step()) return Error{Code::kInternal, "the simulated job stands still: nobody has anything to do, and not all are done"};
      if (job_.error()) return *job_.error();
      if (options_.seconds > 0 && job_.time().now() >= to_instant(options_.seconds)) ending = str(options_.seconds, " virtual seconds are over");
      else if (options_.samples > 0 && tally_.samples >= options_.samples) ending = str(tally_.samples, " samples are done");
      else if (options_.updates > 0 && updates() >= options_.updates) ending = str(options_.updates, " updates are done");
      else if (all_ended()) ending = "all workers have done their iterations";
    }
    note();
    Outcome outcome;
    outcome.ending = ending;
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
    for (RowId row = 0; row < script_.plan.rows.size(); ++row)
      if (script_.plan.rows[row].learns) return job_.shard(script_.plan.rows[row].server).version_of(row).value_or(0);
    return 0;
  }

  void keep_noting() {
    note();
    job_.time().after(to_instant(options_.test_every), [this] { keep_noting(); });
  }

  void note() {
    Point point;
    point.seconds = to_seconds(job_.time().now());
    point.updates = updates();
    point.iterations = tally_.iterations;
    point.samples = tally_.samples;
    if (!points_.empty() && point.seconds > points_.back().seconds)
      point.samples_per_second = (point.samples - points_.back().samples) / (point.seconds - points_.back().seconds);
    point.bytes = static_cast<double>(job_.all_traffic().bytes_sent);
    points_.push_back(point);
    if (saw_) saw_(point);
  }

  const SimulationOptions options_;
  const std::function<void(const Point&)>& saw_;
  SimulatedJob job_;
  Script script_;
  Tally tally_;
  std::vector<std::unique_ptr<DryWorker>> workers_;
  std::size_t done_ = 0;
  std::vector<Point> points_;
};

}  // namespace

Result<Outcome> simulate_dry(const SolverParameter& param, const Cluster& cluster, const SimulationOptions& options, const std::function<void(const Point&)>& saw) {
  return DrySimulation(param, cluster, options, saw).run();
}

}  // namespace shoal::simulate
