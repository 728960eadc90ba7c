// Runs a simulated job to its end in virtual time, and collects its results.
#include "shoal/simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "shoal/base/number.h"
#include "shoal/base/text.h"
#include "shoal/base/try.h"
#include "shoal/data/parts.h"
#include "shoal/parallel/exchange/exchange_choice.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/fields.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/evaluator.h"
#include "shoal/simulate/failures.h"
#include "shoal/simulate/simulated_worker.h"
#include "shoal/solver/net_params.h"
#include "shoal/table/scheme.h"

namespace shoal::simulate {
namespace {

// Lets every worker read its share of a source that is not divided into parts.
void share_sources(NetParameter& net) {
  const auto share = [](auto& data) {
    std::error_code ignored;
    if (!std::filesystem::exists(part_path(data.source(), "0"), ignored))
      data.set_shared_file_system(true);
  };
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (reads_data_param(layer)) share(*layer.mutable_data_param());
    if (layer.type() == "ImageData") share(*layer.mutable_image_data_param());
    if (layer.type() == "WindowData") share(*layer.mutable_window_data_param());
    if (layer.type() == "HDF5Data") share(*layer.mutable_hdf5_data_param());
  }
}

// Returns the spec of the workers, which train and do not test.
parallel::JobSpec spec_of(const SolverParameter& param, const std::string& name) {
  parallel::JobSpec spec = parallel::read_job_spec(without_snapshots(param), name);
  share_sources(*spec.solver.mutable_train_net_param());
  for (const auto clear :
       {&SolverParameter::clear_test_net_param, &SolverParameter::clear_test_state,
        &SolverParameter::clear_test_iter, &SolverParameter::clear_test_interval})
    (spec.solver.*clear)();
  return spec;
}

// Throws ConfigError if workers without numbers cannot run the solver: they compute as long
// whatever their batches are, and find no groups.
void check_dry(const SolverParameter& solver, const parallel::JobSpec& spec,
               const SimulationOptions& options) {
  if (options.dry && parallel::has_search(spec.phases))
    throw ConfigError(Code::kUsage, options.name,
                      ": group_by: SPEED trains for a while and measures the workers, and --dry "
                      "does not; give it the groups");
  const bool own_batch = std::ranges::any_of(solver.scheme(), [](const SchemeParameter& phase) {
    return phase.has_batch_size() || phase.has_iter_size();
  });
  if (options.dry && (own_batch || solver.share_by() != SolverParameter::EQUAL ||
                      solver.batch_by() != SolverParameter::EQUAL))
    throw ConfigError(Code::kUsage, options.name,
                      ": share_by, batch_by and the batch_size or iter_size of a phase say what "
                      "is read, and --dry reads nothing");
}

// Throws ConfigError if a job of this solver cannot have the cluster's failures.
void check_failures(const SolverParameter& solver, const Cluster& cluster,
                    const SimulationOptions& options) {
  if (!cluster.has_failures()) return;
  if (options.dry)
    throw ConfigError(Code::kUsage,
                      "the cluster has failure { }, after which a job goes on with another plan, "
                      "and --dry has one plan alone; leave --dry out, perhaps with a smaller net");
  if (solver.on_lost() == OnLost::STOP || solver.min_workers() > 1)
    throw ConfigError(Code::kConfig, options.name,
                      ": on_lost: STOP and min_workers end a job after a failure, which is not "
                      "simulated, and the cluster has failure { }");
}

// Fills in the rates by which ways of exchange are chosen, where the solver has none, from the
// cluster: its slowest link, its longest latency, and products that take no time.
SolverParameter with_rates(SolverParameter solver, const Cluster& cluster) {
  const auto by_library = [](const auto& one) {
    return one.way() == ExchangeParameter::MPI || one.way() == ExchangeParameter::NCCL;
  };
  if (by_library(solver.exchange()) || std::ranges::any_of(solver.exchange().layer(), by_library))
    throw ConfigError(Code::kUsage,
                      "exchange MPI or NCCL cannot be simulated: the library does its own "
                      "transfers; HALVING_DOUBLING is about as much");
  if (!parallel::needs_rates(solver)) return solver;
  parallel::Rates rates;
  for (const Process& process : cluster.processes) {
    if (process.bandwidth > 0)
      rates.bandwidth =
          rates.bandwidth > 0 ? std::min(rates.bandwidth, process.bandwidth) : process.bandwidth;
    rates.latency = std::max(rates.latency, to_seconds(process.latency));
  }
  rates = parallel::rates_of(solver, rates);
  ExchangeParameter& exchange = *solver.mutable_exchange();
  exchange.set_bandwidth(rates.bandwidth);
  exchange.set_latency_ms(rates.latency * 1e3);
  exchange.set_multiply_adds(rates.multiply_adds);
  return solver;
}

class Simulation {
 public:
  Simulation(const SolverParameter& param, const Cluster& cluster, const SimulationOptions& options)
      : options_(options),
        spec_(spec_of(with_rates(param, cluster), options.name)),
        servers_(options.by_time ? cluster.known_servers() : table::Servers(cluster.servers())),
        job_(cluster, {.seed = options.seed, .dry = options.dry, .scheme = spec_.phases[0].scheme}),
        slots_(options.threads),
        test_every_(to_instant(options.test_every)) {
    check_dry(param, spec_, options);
    check_failures(param, cluster, options);
    const auto founders = static_cast<std::size_t>(job_.workers());
    if (cluster.has_failures()) {
      account_.emplace(founders);
      failures_.emplace(job_.cluster(), options.seed, job_.time(),
                        Failures::Hooks{.fail = [this](int worker) { return fail(worker); },
                                        .come_back = [this](int worker) { come_back(worker); }});
    }
    workers_ = options.dry ? make_dry_workers(setup()) : make_training_workers(setup());
    for (const auto& worker : workers_) places_.push_back(worker.get());
    if (options.dry) return;
    evaluator_.emplace(param, setup());
    if (options.target && options.target->output != kTrainLoss)
      evaluator_->check(options.target->output);
    if (options.test_every > 0) return;
    double step = 0;  // the mean of the workers
    for (int worker = 0; worker < job_.workers(); ++worker)
      step += job_.process_of(worker).compute.mean / job_.workers();
    test_every_ = to_instant(step * param.test_interval());
  }
  ~Simulation() { stop(); }

  Result<Outcome> run() {
    if (options_.seconds > 0)
      job_.time().at(to_instant(options_.seconds), [this] {
        if (!is_idle()) outcome_.ending = str(options_.seconds, " virtual seconds are over");
      });
    for (const auto& worker : workers_) worker->start();
    try {
      step_to_end();
    } catch (const ConfigError& error) {
      job_.fail(error.error());
    }
    if (const Status status = job_.status(); !status.ok()) {
      if (!failures_ || status.error().code != Code::kPeer) return status.error();
      outcome_.ending = "the job cannot go on: " + status.error().message;
    }
    const Instant end = job_.time().now();
    stop();  // a wait that is cut off counts
    complete(end);
    return std::move(outcome_);
  }

 private:
  WorkerSetup setup() {
    return {spec_, options_, servers_, job_, slots_, tally_, account_ ? &*account_ : nullptr};
  }
  // Returns whether nothing is to come but failures, and processes that come back.
  bool is_idle() { return job_.time().events() <= (failures_ ? failures_->waiting() : 0); }

  // Ends the threads of workers that have not ended.
  void stop() {
    if (!all_ended()) job_.fail({Code::kInternal, "the simulation is over"});
    for (const auto& worker : workers_)
      while (!worker->ended()) worker->resume();
  }

  void step_to_end() {
    if (test_every_.count() > 0) keep_testing();
    while (outcome_.ending.empty() && job_.status().ok()) {
      if (all_ended()) {
        const bool none_left = std::ranges::all_of(places_, &SimulatedWorker::is_lost);
        outcome_.ending =
            none_left ? "no worker is left" : "all workers have done their iterations";
        return;
      }
      up_to_date_ = false;
      if (is_idle() || !job_.time().step())
        job_.fail({Code::kInternal,
                   "the simulated job stands still: no worker has anything to do, and not all have "
                   "ended"});
      else
        check_limits();
      if (account_) account_->updated(job_.time().now(), job_.updates());
    }
  }

  // ---- failures ----
  bool fail(int number) {
    SimulatedWorker& worker = *places_[static_cast<std::size_t>(number)];
    if (worker.is_lost() || worker.ended()) return false;
    const Rank rank = worker.place().rank;
    worker.be_lost();
    job_.lose(rank, job_.process_of(rank).failure->unnoticed + job_.latency(rank));
    return true;
  }
  void come_back(int number) {
    SimulatedWorker*& worker = places_[static_cast<std::size_t>(number)];
    const Rank rank = job_.admit(worker->place().rank);
    workers_.push_back(
        make_training_worker(setup(), {.number = number, .rank = rank, .joins = true}));
    worker = workers_.back().get();
    worker->start();
  }
  // Returns the worker that is the chief now, or will be.
  SimulatedWorker& chief() {
    const auto order = [](const SimulatedWorker* worker) {
      const int number = worker->number();
      return std::pair(worker->is_lost() || number < 0, number);
    };
    return **std::ranges::min_element(places_, {}, order);
  }

  bool all_ended() const { return tally_.ended == workers_.size(); }

  // Tests again and again, as long as any other event is to come.
  void keep_testing() {
    add_point();
    if (!is_idle()) job_.time().after(test_every_, [this] { keep_testing(); });
  }

  void add_point() {
    Point point;
    point.seconds = to_seconds(job_.time().now());
    point.updates = job_.updates();
    point.iterations = tally_.iterations;
    point.samples = tally_.samples;
    if (!outcome_.points.empty() && point.seconds > outcome_.points.back().seconds)
      point.samples_per_second = (point.samples - outcome_.points.back().samples) /
                                 (point.seconds - outcome_.points.back().seconds);
    for (const auto& process : job_.roster().processes)
      point.bytes += job_.traffic(process.rank).bytes_sent;
    const bool has_loss = tally_.counted > 0;
    if (has_loss) loss_ = tally_.losses / static_cast<double>(tally_.counted);
    point.loss = loss_.value_or(0);
    tally_.losses = 0;
    tally_.counted = 0;
    if (evaluator_) point.scores = evaluator_->test(workers_);
    outcome_.points.push_back(point);
    if (options_.saw) options_.saw(point);
    write(point, has_loss);
    if (options_.target) check_target(point);
    up_to_date_ = true;
  }

  // Writes the point to the metrics of worker 0.
  void write(const Point& point, bool has_loss) {
    if (has_loss)
      chief().record({.kind = ScoreMetrics::Kind::kDisplay,
                      .clock = point.updates,
                      .time = point.seconds,
                      .loss = point.loss});
    if (point.scores.empty()) return;
    ScoreMetrics test{
        .kind = ScoreMetrics::Kind::kTest, .clock = point.updates, .time = point.seconds};
    for (const TestScore& score : point.scores) {
      test.outputs.emplace_back(score.output, score.mean);
      test.loss += static_cast<double>(score.loss_weight) * score.mean;
    }
    chief().record(test);
  }

  void check_target(const Point& point) {
    const Target& target = *options_.target;
    std::optional<double> value;
    if (target.output == kTrainLoss) value = loss_;
    for (const TestScore& score : point.scores)
      if (score.output == target.output && !value) value = score.mean;
    if (!value || (target.at_most ? *value > target.value : *value < target.value)) return;
    outcome_.ending = str(target.output, " is ", *value);
  }

  void check_limits() {
    if (options_.samples > 0 && tally_.samples >= options_.samples)
      outcome_.ending = str(tally_.samples, " samples are done");
    else if (options_.updates > 0 && job_.updates() >= options_.updates)
      outcome_.ending = str(options_.updates, " updates are done");
  }

  void complete(Instant end) {
    if (!up_to_date_) add_point();
    std::vector<std::string> schemes;
    for (const parallel::Phase& phase : spec_.phases) schemes.push_back(phase.scheme.words());
    outcome_.scheme = join(schemes, ", then ");
    outcome_.seconds = to_seconds(end);
    add_workers(end);
    outcome_.counters = job_.counters();
    outcome_.version_staleness = job_.version_staleness();
    if (evaluator_) outcome_.weights = evaluator_->weights();
    outcome_.warnings = job_.take_warnings();
  }

  // Adds up the figures of the processes that were in the place of each worker.
  void add_workers(Instant end) {
    outcome_.workers.resize(places_.size());
    for (const auto& worker : workers_) {
      outcome_.workers[static_cast<std::size_t>(worker->place().number)] += worker->figures();
      if (account_) worker->account();
    }
    if (!account_) return;
    std::vector<double> had;  // a worker that has come to its end has no more to do
    for (const SimulatedWorker* worker : places_)
      had.push_back(worker->is_lost() ? to_seconds(end)
                                      : std::min(to_seconds(end), worker->figures().seconds));
    outcome_.failures = account_->figures(end, had);
  }

  const SimulationOptions options_;
  const parallel::JobSpec spec_;
  const table::Servers servers_;
  SimulatedJob job_;
  std::optional<FailureAccount> account_;  // these two: none where no worker fails
  std::optional<Failures> failures_;
  std::optional<Evaluator> evaluator_;  // none without numbers
  ComputeSlots slots_;
  Tally tally_;
  Workers workers_;                       // all that there have been
  std::vector<SimulatedWorker*> places_;  // by worker of the cluster, the last one in its place
  Instant test_every_;                    // 0: never
  std::optional<double> loss_;            // of the last point that has one of its own
  bool up_to_date_ = false;               // nothing has happened since the last point
  Outcome outcome_;                       // with an ending once the run has ended
};

}  // namespace

Target parse_target(const std::string& words) {
  const std::vector<std::string> parts = split(words, ' ');
  const auto value = parts.size() == 2 ? number_in<double>(parts[1]) : std::nullopt;
  if (!value || !std::isfinite(*value))
    throw ConfigError(Code::kUsage, "the target is '", words,
                      "'; it is to be the name of an output and a number, like \"accuracy 0.98\"");
  return {parts[0], *value, parts[0].find("loss") != std::string::npos};
}

WorkerFigures& WorkerFigures::operator+=(const WorkerFigures& later) {
  iterations += later.iterations;
  samples += later.samples;
  seconds = later.seconds;
  compute += later.compute;
  rows += later.rows;
  others += later.others;
  traffic.bytes_sent += later.traffic.bytes_sent;
  traffic.bytes_received += later.traffic.bytes_received;
  traffic.frames_sent += later.traffic.frames_sent;
  traffic.frames_received += later.traffic.frames_received;
  traffic.local_bytes += later.traffic.local_bytes;
  traffic.sending += later.traffic.sending;
  traffic.receiving += later.traffic.receiving;
  return *this;
}

Result<Outcome> simulate(const SolverParameter& param, const Cluster& cluster,
                         const SimulationOptions& options) {
  return Simulation(param, cluster, options).run();
}

}  // namespace shoal::simulate
