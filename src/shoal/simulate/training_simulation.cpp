// Simulates a job whose workers train: real solvers, gradients and data.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "shoal/base/text.h"
#include "shoal/data/parts.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/net.pb.h"
#include "shoal/simulate/simulated_worker.h"
#include "shoal/simulate/simulation_run.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"
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

// Returns the solver of a worker, which trains and does not test.
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

// Tests the net with the rows as they are on the servers.
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
      if (!now) return {};  // the rows do not exist yet
      std::ranges::copy(now->payload.floats(), rows_.weights(row).begin());
    }
    average_sums(workers);
    return or_throw(solver_.test(0));
  }
  // Returns the values of all rows; none before the rows exist.
  std::vector<float> weights() const {
    std::vector<float> all;
    for (table::RowId row = 0; row < rows_.rows().size(); ++row)
      if (const auto now = job_.shard(rows_.rows()[row].server).look(row))
        all.insert(all.end(), now->payload.floats().begin(), now->payload.floats().end());
    return all;
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

  // Sets the values that forward passes change, such as running means, to the mean of the workers
  // that have done an iteration.
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

// Returns which files a worker writes.
parallel::RecorderOptions record_of(const SimulationOptions& options, const std::string& scheme,
                                    const Cluster& cluster) {
  parallel::RecorderOptions record;
  record.metrics = options.out;
  record.esync_logs = options.esync_logs;
  record.run = {.scheme = scheme, .workers = cluster.workers(), .simulated = true};
  record.local_steps =
      or_throw(table::make_scheme(scheme))->contribution() != table::ContributionKind::kGradient;
  return record;
}

class TrainingSimulation final : public SimulationRun {
 public:
  TrainingSimulation(const SolverParameter& param, const Cluster& cluster,
                     const SimulationOptions& options, const std::function<void(const Point&)>& saw)
      : SimulationRun(param, cluster, options, false, saw),
        evaluator_(param, options, job_),
        worker_options_{for_workers(param, options.name), options.name, options.seed,
                        record_of(options, phases_[0].words, cluster),
                        servers_of(cluster, options)},
        slots_(options.threads) {
    if (options.target && options.target->output != kTrainLoss) check_output(*options.target);
    if (options.test_every <= 0) test_every_ = to_instant(mean_step() * param.test_interval());
    for (int worker = 0; worker < job_.workers(); ++worker)
      workers_.push_back(
          std::make_unique<SimulatedWorker>(job_, worker, worker_options_, slots_, tally_));
  }

 private:
  void check_output(const Target& target) const {
    std::vector<std::string> names = {kTrainLoss};
    if (!evaluator_.test_nets().empty())
      for (const Blob* output : evaluator_.test_nets()[0]->outputs()) names.push_back(output->name);
    if (std::ranges::find(names, target.output) == names.end())
      throw ConfigError(Code::kUsage, "the target is '", target.output,
                        "', which is no output of the test net", did_you_mean(target.output, names),
                        "; known are ", join(names));
  }

  // Returns the seconds of an iteration, as the mean of the workers.
  double mean_step() const {
    double mean = 0;
    for (int worker = 0; worker < job_.workers(); ++worker)
      mean += job_.process_of(worker).compute.mean / job_.workers();
    return mean;
  }

  void start_workers() override {
    for (const auto& worker : workers_) worker->start();
  }
  // Ends the threads of workers that have not ended.
  void stop_workers() override {
    job_.fail({Code::kInternal, "the simulation is over"});
    for (const auto& worker : workers_)
      while (!worker->ended()) worker->resume();
  }
  bool has_ended(std::size_t i) const override { return workers_[i]->ended(); }
  WorkerFigures figures(std::size_t i) const override { return workers_[i]->figures(); }
  std::vector<TestScore> test() override { return evaluator_.test(workers_); }
  std::vector<float> weights() const override { return evaluator_.weights(); }

  // Writes the point to the metrics of worker 0.
  void write(const Point& point) override {
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

  Evaluator evaluator_;
  const SimulatedWorkerOptions worker_options_;
  ComputeSlots slots_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
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
  return TrainingSimulation(param, cluster, options, saw).run();
}

}  // namespace shoal::simulate
