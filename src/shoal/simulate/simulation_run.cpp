#include "shoal/simulate/simulation_run.h"

#include <algorithm>

#include "shoal/base/text.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/table/scheme.h"

namespace shoal::simulate {

table::Servers servers_of(const Cluster& cluster, const SimulationOptions& options) {
  return options.by_time ? cluster.known_servers() : table::Servers(cluster.servers());
}

namespace {

std::vector<parallel::Phase> checked_phases(const SolverParameter& param, const std::string& name) {
  std::vector<parallel::Phase> phases = or_throw(parallel::phases_of(param, name));
  for (const parallel::Phase& phase : phases)
    if (const auto scheme = table::make_scheme(phase.words); !scheme.ok() && !phase.search)
      throw ConfigError(scheme.error().code, name, ": ", scheme.error().message);
  return phases;
}

}  // namespace

SimulationRun::SimulationRun(const SolverParameter& param, const Cluster& cluster,
                             const SimulationOptions& options, bool dry,
                             const std::function<void(const Point&)>& saw)
    : options_(options),
      phases_(checked_phases(param, options.name)),
      job_(cluster, {.seed = options.seed, .dry = dry, .scheme = phases_[0].words}),
      test_every_(to_instant(options.test_every)),
      saw_(saw) {}

Result<Outcome> SimulationRun::run() {
  if (job_.error()) return *job_.error();
  start_workers();
  try {
    step_to_end();
  } catch (const ConfigError& error) {
    job_.fail(error.error());
  }
  const Instant end = job_.time().now();
  const std::optional<Error> error = job_.error();
  stop_workers();
  if (error) return *error;
  return outcome(end);
}

void SimulationRun::step_to_end() {
  if (test_every_.count() > 0) keep_testing();
  while (ending_.empty() && !job_.error()) {
    if (all_ended())
      ending_ = "all workers have done their iterations";
    else if (!job_.time().step())
      job_.fail({Code::kInternal,
                 "the simulated job stands still: no worker has anything to do, and not all have "
                 "ended"});
    else
      check_limits();
  }
}

// Called after every event, so it does not ask again a worker that has ended.
bool SimulationRun::all_ended() {
  while (ended_ < static_cast<std::size_t>(job_.workers()) && has_ended(ended_)) ++ended_;
  return ended_ == static_cast<std::size_t>(job_.workers());
}

std::int64_t SimulationRun::updates() {
  const table::Plan* plan = job_.shard(0).plan();
  if (plan == nullptr) return 0;
  const auto row = std::ranges::find(plan->rows, true, &table::Row::learns);
  if (row == plan->rows.end()) return 0;
  return job_.shard(row->server)
      .version_of(static_cast<table::RowId>(row - plan->rows.begin()))
      .value_or(0);
}

// Tests again and again, as long as anything else is to happen.
void SimulationRun::keep_testing() {
  add_point();
  if (!job_.time().is_idle()) job_.time().after(test_every_, [this] { keep_testing(); });
}

void SimulationRun::add_point() {
  Point point;
  point.seconds = to_seconds(job_.time().now());
  point.updates = updates();
  point.iterations = tally_.iterations;
  point.samples = tally_.samples;
  if (!points_.empty() && point.seconds > points_.back().seconds)
    point.samples_per_second =
        (point.samples - points_.back().samples) / (point.seconds - points_.back().seconds);
  if (tally_.counted > 0) point.loss = tally_.losses / static_cast<double>(tally_.counted);
  tally_.losses = 0;
  tally_.counted = 0;
  point.bytes = static_cast<double>(job_.all_traffic().bytes_sent);
  point.scores = test();
  points_.push_back(point);
  if (saw_) saw_(point);
  write(point);
  if (options_.target) check_target(point);
}

void SimulationRun::check_target(const Point& point) {
  const Target& target = *options_.target;
  std::optional<double> value;
  if (target.output == kTrainLoss && point.loss != 0) value = point.loss;
  for (const TestScore& score : point.scores)
    if (score.output == target.output && !value) value = score.mean;
  if (!value || (target.at_most ? *value > target.value : *value < target.value)) return;
  reached_ = point.seconds;
  ending_ = str(target.output, " is ", *value);
}

void SimulationRun::check_limits() {
  if (options_.seconds > 0 && job_.time().now() >= to_instant(options_.seconds))
    ending_ = str(options_.seconds, " virtual seconds are over");
  else if (options_.samples > 0 && tally_.samples >= options_.samples)
    ending_ = str(tally_.samples, " samples are done");
  else if (options_.updates > 0 && updates() >= options_.updates)
    ending_ = str(options_.updates, " updates are done");
}

Outcome SimulationRun::outcome(Instant end) {
  if (points_.empty() || points_.back().seconds < to_seconds(end)) add_point();
  Outcome outcome;
  outcome.ending = ending_;
  std::vector<std::string> schemes;
  for (const parallel::Phase& phase : phases_) schemes.push_back(phase.words);
  outcome.scheme = join(schemes, ", then ");
  outcome.seconds = to_seconds(end);
  outcome.points = points_;
  for (int i = 0; i < job_.workers(); ++i)
    outcome.workers.push_back(figures(static_cast<std::size_t>(i)));
  outcome.traffic = job_.all_traffic();
  outcome.counters = job_.counters();
  outcome.version_staleness = job_.version_staleness();
  outcome.weights = weights();
  outcome.warnings = job_.take_warnings();
  outcome.reached = reached_;
  return outcome;
}

}  // namespace shoal::simulate
