#include "shoal/simulate/simulation.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/data/parts.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/net.pb.h"
#include "shoal/simulate/worker.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"
#include "shoal/table/scheme.h"

namespace shoal::simulate {
namespace {

constexpr const char* kTrainLoss = "train_loss";

// Data that nobody cut up is read by all, each its share, as with shared_file_system.
void share_sources(NetParameter& net) {
  const auto share = [](auto& data) {
    std::error_code ignored;
    if (!std::filesystem::exists(part_path(data.source(), "0"), ignored))
      data.set_shared_file_system(true);
  };
  for (LayerParameter& layer : *net.mutable_layer()) {
    if (layer.type() == "Data") share(*layer.mutable_data_param());
    if (layer.type() == "ImageData") share(*layer.mutable_image_data_param());
  }
}

void clear_snapshots(SolverParameter& param) {
  param.clear_snapshot();
  param.set_snapshot_after_train(false);
  param.clear_snapshot_best();
  param.set_display(0);
}

// What workers do: train.
SolverParameter for_workers(const SolverParameter& param, const std::string& name) {
  SolverParameter own = param;
  NetParameter net = train_net_of(param, name);
  share_sources(net);
  for (const auto clear :
       {&SolverParameter::clear_net, &SolverParameter::clear_train_net,
        &SolverParameter::clear_net_param, &SolverParameter::clear_train_net_param,
        &SolverParameter::clear_test_net, &SolverParameter::clear_test_net_param,
        &SolverParameter::clear_test_state, &SolverParameter::clear_test_iter,
        &SolverParameter::clear_test_interval})
    (own.*clear)();
  *own.mutable_train_net_param() = std::move(net);
  clear_snapshots(own);
  return own;
}

// Tests the rows as they are on the servers.
class Evaluator {
 public:
  Evaluator(const SolverParameter& param, const SimulationOptions& options, SimulatedJob& job)
      : job_(job),
        solver_(for_tests(param), options_of(options)),
        rows_(solver_.net(), servers_of(job.cluster(), options),
              {.stays = parallel::is_alone(job.roster())}) {}

  std::vector<TestScore> test(std::span<const std::unique_ptr<SimulatedWorker>> workers) {
    if (solver_.test_nets().empty()) return {};
    for (table::RowId row = 0; row < rows_.rows().size(); ++row) {
      const auto now = job_.shard(rows_.rows()[row].server).look(row);
      if (!now) return {};  // not planted yet
      std::ranges::copy(now->values.data, rows_.weights(row).begin());
    }
    average_sums(workers);
    return or_throw(solver_.test(0));
  }
  // Empty before the rows were planted.
  std::vector<float> weights() const {
    std::vector<float> all;
    for (table::RowId row = 0; row < rows_.rows().size(); ++row)
      if (const auto now = job_.shard(rows_.rows()[row].server).look(row))
        all.insert(all.end(), now->values.data.begin(), now->values.data.end());
    return all;
  }
  std::int64_t updates() const {
    for (table::RowId row = 0; row < rows_.rows().size(); ++row)
      if (rows_.rows()[row].learns)
        return job_.shard(rows_.rows()[row].server).version_of(row).value_or(0);
    return 0;
  }
  std::span<const std::unique_ptr<Net>> test_nets() const { return solver_.test_nets(); }

 private:
  static SolverOptions options_of(const SimulationOptions& options) {
    SolverOptions own;
    own.threads = options.threads;
    own.name = options.name;
    return own;
  }
  static SolverParameter for_tests(SolverParameter param) {
    clear_snapshots(param);
    return param;
  }

  // What forward passes changed is each worker's own: their mean, of those that have done
  // something.
  void average_sums(std::span<const std::unique_ptr<SimulatedWorker>> workers) {
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
  const parallel::RowMap rows_;
};

// The schemes of its phases, each of which there is.
std::vector<std::string> schemes_of(const SolverParameter& param, const std::string& name) {
  std::vector<std::string> schemes;
  for (const parallel::Phase& phase : or_throw(parallel::phases_of(param, name))) {
    if (const auto scheme = table::make_scheme(phase.words); !scheme.ok() && !phase.search)
      throw ConfigError(scheme.error().code, name, ": ", scheme.error().message);
    schemes.push_back(phase.words);
  }
  return schemes;
}

// What is written of worker 0.
parallel::RecorderOptions record_of(const SimulationOptions& options, const std::string& scheme,
                                    const Cluster& cluster) {
  parallel::RecorderOptions record;
  record.metrics = options.out;
  record.esync_logs = options.esync_logs;
  record.run = {.scheme = scheme, .workers = cluster.workers(), .simulated = true};
  record.local_steps = or_throw(table::make_scheme(scheme))->payload() != table::Payload::kGradient;
  return record;
}

class Simulation {
 public:
  Simulation(const SolverParameter& param, const Cluster& cluster, const SimulationOptions& options,
             const std::function<void(const Point&)>& saw)
      : options_(options),
        saw_(saw),
        schemes_(schemes_of(param, options.name)),
        job_(cluster, {.seed = options.seed, .dry = false, .scheme = schemes_[0]}),
        evaluator_(param, options, job_),
        plan_{for_workers(param, options.name), options.name, options.seed,
              record_of(options, schemes_[0], cluster), servers_of(cluster, options)},
        desks_(options.threads) {
    if (options.target && options.target->output != kTrainLoss) check_target(*options.target);
    test_every_ = to_instant(options.test_every > 0 ? options.test_every : default_interval(param));
    for (int worker = 0; worker < job_.workers(); ++worker)
      workers_.push_back(std::make_unique<SimulatedWorker>(job_, worker, plan_, desks_, tally_));
  }

  Result<Outcome> run() {
    for (const auto& worker : workers_) worker->start();
    try {
      go();
    } catch (const ConfigError& error) {  // of a test, or a file
      job_.fail(error.error());
    }
    const Instant end = job_.time().now();
    const std::optional<Error> error = job_.error();
    job_.fail({Code::kInternal, "the simulation is over"});
    for (const auto& worker : workers_)
      while (!worker->ended()) worker->actor().turn();
    if (error) return *error;
    return outcome(end);
  }

 private:
  void check_target(const Target& target) const {
    std::vector<std::string> names = {kTrainLoss};
    if (!evaluator_.test_nets().empty())
      for (const Blob* output : evaluator_.test_nets()[0]->outputs()) names.push_back(output->name);
    if (std::ranges::find(names, target.output) == names.end())
      throw ConfigError(Code::kUsage, "the target is '", target.output,
                        "', which is no output of the test net", did_you_mean(target.output, names),
                        "; known are ", join(names));
  }

  void go() {
    if (test_every_.count() > 0) keep_testing();
    while (ending_.empty() && !job_.error()) {
      if (std::ranges::all_of(workers_, [](const auto& worker) { return worker->ended(); }))
        ending_ = "all workers have done their iterations";
      else if (!job_.time().step())
        job_.fail(
            {Code::kInternal,
             "the simulated job stands still: nobody has anything to do, and not all are done"});
      else
        check_limits();
    }
  }

  double default_interval(const SolverParameter& param) const {
    double mean = 0;
    for (int worker = 0; worker < job_.workers(); ++worker)
      mean += job_.process_of(worker).compute.mean / job_.workers();
    return mean * param.test_interval();
  }

  // As long as anything else is to happen.
  void keep_testing() {
    note();
    if (!job_.time().is_idle()) job_.time().after(test_every_, [this] { keep_testing(); });
  }

  // On the disk beside the workers' clocks.
  void write(const Point& point) {
    if (point.iterations > 0)
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

  // How far the job is, and how good.
  void note() {
    Point point;
    point.seconds = to_seconds(job_.time().now());
    point.updates = evaluator_.updates();
    point.iterations = tally_.iterations;
    point.samples = tally_.samples;
    if (!points_.empty() && point.seconds > points_.back().seconds)
      point.samples_per_second =
          (point.samples - points_.back().samples) / (point.seconds - points_.back().seconds);
    if (tally_.counted > 0) point.loss = tally_.losses / static_cast<double>(tally_.counted);
    tally_.losses = 0, tally_.counted = 0;
    point.bytes = static_cast<double>(job_.all_traffic().bytes_sent);
    point.scores = evaluator_.test(workers_);
    points_.push_back(point);
    if (saw_) saw_(point);
    write(point);
    check_reached(point);
  }

  void check_reached(const Point& point) {
    if (!options_.target) return;
    std::optional<double> value;
    if (options_.target->output == kTrainLoss && point.loss != 0) value = point.loss;
    for (const TestScore& score : point.scores)
      if (score.output == options_.target->output && !value) value = score.mean;
    if (!value || (options_.target->at_most ? *value > options_.target->value
                                            : *value < options_.target->value))
      return;
    reached_ = point.seconds;
    ending_ = str(options_.target->output, " is ", *value);
  }

  void check_limits() {
    if (options_.seconds > 0 && job_.time().now() >= to_instant(options_.seconds))
      ending_ = str(options_.seconds, " virtual seconds are over");
    else if (options_.samples > 0 && tally_.samples >= options_.samples)
      ending_ = str(tally_.samples, " samples are done");
    else if (options_.updates > 0 && evaluator_.updates() >= options_.updates)
      ending_ = str(options_.updates, " updates are done");
  }

  Outcome outcome(Instant end) {
    if (points_.empty() || points_.back().seconds < to_seconds(end)) note();
    Outcome outcome;
    outcome.ending = ending_;
    outcome.scheme = join(schemes_, ", then ");
    outcome.seconds = to_seconds(end);
    outcome.points = points_;
    for (int i = 0; i < job_.workers(); ++i) {
      const SimulatedWorker& worker = *workers_[static_cast<std::size_t>(i)];
      outcome.workers.push_back({.iterations = worker.iterations(),
                                 .samples = worker.samples(),
                                 .seconds = worker.ended_at(),
                                 .compute = worker.times().compute,
                                 .rows = worker.times().rows,
                                 .others = worker.times().others,
                                 .traffic = job_.traffic(i)});
    }
    outcome.traffic = job_.all_traffic();
    outcome.counters = job_.counters();
    outcome.version_staleness = job_.version_staleness();
    outcome.weights = evaluator_.weights();
    outcome.warnings = job_.take_warnings();
    outcome.reached = reached_;
    return outcome;
  }

  const SimulationOptions options_;
  const std::function<void(const Point&)>& saw_;
  const std::vector<std::string> schemes_;  // by phase
  SimulatedJob job_;
  Evaluator evaluator_;
  const WorkerPlan plan_;
  Desks desks_;
  Tally tally_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  Instant test_every_{};
  std::vector<Point> points_;
  std::string ending_;
  std::optional<double> reached_;
};

}  // namespace

Target parse_target(const std::string& words) {
  const std::vector<std::string> parts = split(words, ' ');
  char* end = nullptr;
  const double value = parts.size() == 2 ? std::strtod(parts[1].c_str(), &end) : 0;
  if (parts.size() != 2 || end == parts[1].c_str() || *end != '\0')
    throw ConfigError(Code::kUsage, "the target is '", words,
                      "'; it is to be the name of an output and a number, like \"accuracy 0.98\"");
  return {parts[0], value, parts[0].find("loss") != std::string::npos};
}

Result<Outcome> simulate(const SolverParameter& param, const Cluster& cluster,
                         const SimulationOptions& options,
                         const std::function<void(const Point&)>& saw) {
  return Simulation(param, cluster, options, saw).run();
}

}  // namespace shoal::simulate
