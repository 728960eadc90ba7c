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
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulated_worker.h"
#include "shoal/solver/net_params.h"
#include "shoal/table/scheme.h"

namespace shoal::simulate {
namespace {

SolverParameter without_snapshots(SolverParameter param) {
  param.clear_snapshot();
  param.set_snapshot_after_train(false);
  param.clear_snapshot_best();
  param.set_display(0);
  return param;
}

// Returns the solver that tests. Where phases say how long the run is, it does not warn that there
// is no max_iter.
SolverParameter tester_of(const SolverParameter& param, const parallel::JobSpec& spec) {
  SolverParameter solver = without_snapshots(param);
  if (!solver.has_max_iter() && spec.phases.back().end > 0) solver.set_max_iter(1);
  return solver;
}

// Lets every worker read its share of a source that is not divided into parts.
void share_sources(NetParameter& net) {
  const auto share = [](auto& data) {
    std::error_code ignored;
    if (!std::filesystem::exists(part_path(data.source(), "0"), ignored))
      data.set_shared_file_system(true);
  };
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (layer.type() == "Data") share(*layer.mutable_data_param());
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

// Tests the net with the rows as they are on the servers.
class Evaluator {
 public:
  Evaluator(const SolverParameter& param, const WorkerSetup& setup)
      : job_(setup.job),
        solver_(tester_of(param, setup.spec),
                {.threads = setup.options.threads, .name = setup.options.name}) {}

  std::vector<TestScore> test(const Workers& workers) {
    if (solver_.test_nets().empty() || !load(workers)) return {};
    average_sums(workers);
    return or_throw(solver_.test(0));
  }
  // Returns the values of all params; none before the rows exist.
  std::vector<float> weights(const Workers& workers) {
    std::vector<float> all;
    if (!load(workers)) return all;
    for (const NetParam& param : solver_.net().params())
      std::ranges::copy(param.blob->data.host(), std::back_inserter(all));
    return all;
  }
  // Throws ConfigError unless `target` is an output of the test.
  void check(const std::string& target) const {
    std::vector<std::string> names = {kTrainLoss};
    if (!solver_.test_nets().empty())
      for (const Blob* output : solver_.test_nets()[0]->outputs_of_one_size())
        names.push_back(output->name);
    if (std::ranges::find(names, target) == names.end())
      throw ConfigError(Code::kUsage, "the target is '", target,
                        "', which is no output of the test net", did_you_mean(target, names),
                        "; known are ", join(names));
  }

 private:
  // Gives the net the params of the job: the servers' rows, and where each worker updates a param
  // itself, worker 0's. False: the rows do not exist yet.
  bool load(const Workers& workers) {
    const Plan* const plan = job_.shard(0).plan();
    const std::vector<float>& own = workers[0]->own_params();
    RowId row = 0;          // a plan's first rows are those of the params, one after the other
    std::size_t begin = 0;  // of the param in `own`
    for (const NetParam& param : solver_.net().params()) {
      const std::span<float> all = param.blob->data.host_mut();
      for (std::size_t at = 0; at < all.size(); ++row) {
        const auto now = plan ? job_.shard(job_.server_of(row)).look(row) : std::nullopt;
        if (!now) return false;
        std::span<const float> numbers = now->payload.floats();
        if (param.lr_mult != 0 && !plan->rows[row].learns && !own.empty())
          numbers = std::span(own).subspan(begin + at, numbers.size());
        std::ranges::copy(numbers, all.begin() + static_cast<std::ptrdiff_t>(at));
        at += numbers.size();
      }
      begin += all.size();
    }
    return true;
  }

  // Sets the values that forward passes change, such as running means, to the mean of the workers
  // that have done an iteration.
  void average_sums(const Workers& workers) {
    std::vector<double> sums;
    int with = 0;
    for (const auto& worker : workers) {
      if (worker->running_sums().empty()) continue;
      sums.resize(worker->running_sums().size());
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] += static_cast<double>(worker->running_sums()[i]);
      ++with;
    }
    if (with == 0) return;
    auto from = sums.begin();
    for_each_running_sum(solver_.net(), [&](Tensor& sum) {
      for (float& number : sum.host_mut()) number = static_cast<float>(*from++ / with);
    });
  }

  SimulatedJob& job_;
  Solver solver_;
};

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
    const WorkerSetup setup{spec_, options_, servers_, job_, slots_, tally_};
    workers_ = options.dry ? make_dry_workers(setup) : make_training_workers(setup);
    if (options.dry) return;
    evaluator_.emplace(param, setup);
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
        if (!job_.time().is_idle())
          outcome_.ending = str(options_.seconds, " virtual seconds are over");
      });
    for (const auto& worker : workers_) worker->start();
    try {
      step_to_end();
    } catch (const ConfigError& error) {
      job_.fail(error.error());
    }
    TRY(job_.status());
    const Instant end = job_.time().now();
    stop();  // a wait that is cut off counts
    complete(end);
    return std::move(outcome_);
  }

 private:
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
        outcome_.ending = "all workers have done their iterations";
        return;
      }
      up_to_date_ = false;
      if (!job_.time().step())
        job_.fail({Code::kInternal,
                   "the simulated job stands still: no worker has anything to do, and not all have "
                   "ended"});
      else
        check_limits();
    }
  }

  bool all_ended() const { return tally_.ended == workers_.size(); }

  // Tests again and again, as long as any other event is to come.
  void keep_testing() {
    add_point();
    if (!job_.time().is_idle()) job_.time().after(test_every_, [this] { keep_testing(); });
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
      workers_[0]->record({.kind = ScoreMetrics::Kind::kDisplay,
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
    workers_[0]->record(test);
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
    for (const auto& worker : workers_) outcome_.workers.push_back(worker->figures());
    outcome_.counters = job_.counters();
    outcome_.version_staleness = job_.version_staleness();
    if (evaluator_) outcome_.weights = evaluator_->weights(workers_);
    outcome_.warnings = job_.take_warnings();
  }

  const SimulationOptions options_;
  const parallel::JobSpec spec_;
  const table::Servers servers_;
  SimulatedJob job_;
  std::optional<Evaluator> evaluator_;  // none without numbers
  ComputeSlots slots_;
  Tally tally_;
  Workers workers_;
  Instant test_every_;          // 0: never
  std::optional<double> loss_;  // of the last point that has one of its own
  bool up_to_date_ = false;     // nothing has happened since the last point
  Outcome outcome_;             // with an ending once the run has ended
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

Result<Outcome> simulate(const SolverParameter& param, const Cluster& cluster,
                         const SimulationOptions& options) {
  return Simulation(param, cluster, options).run();
}

}  // namespace shoal::simulate
