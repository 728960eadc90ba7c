// A worker that trains: a real solver with real gradients and data.
#include <filesystem>

#include "shoal/data/parts.h"
#include "shoal/net/net.h"
#include "shoal/parallel/recorder.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/net.pb.h"
#include "shoal/simulate/simulated_worker.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/sliced_updater.h"

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

// Returns what workers train, who do not test.
parallel::JobSpec spec_of(parallel::JobSpec spec) {
  share_sources(*spec.solver.mutable_train_net_param());
  for (const auto clear :
       {&SolverParameter::clear_test_net_param, &SolverParameter::clear_test_state,
        &SolverParameter::clear_test_iter, &SolverParameter::clear_test_interval})
    (spec.solver.*clear)();
  return spec;
}

// The nets and options with which all workers train, and the files that they write.
struct Training {
  explicit Training(const WorkerSetup& setup) : spec(spec_of(setup.spec)), servers(setup.servers) {
    const table::SchemeSpec& scheme = spec.phases[0].scheme;
    record.metrics = setup.options.out;
    record.esync_logs = setup.options.esync_logs;
    record.run = {.scheme = scheme.words(), .workers = setup.job.workers(), .simulated = true};
    record.local_steps =
        or_throw(scheme.make())->contribution() != table::ContributionKind::kGradient;
  }
  const parallel::JobSpec spec;
  const table::Servers servers;
  parallel::RecorderOptions record;
};

class TrainingWorker final : public SimulatedWorker {
 public:
  TrainingWorker(const WorkerSetup& setup, int number, std::shared_ptr<const Training> training)
      : SimulatedWorker(setup, number), training_(std::move(training)) {
    parallel::RecorderOptions record = training_->record;
    if (record.metrics.empty() && record.esync_logs.empty()) return;
    record.run.worker = number;
    recorder_.emplace(record, &table_, nullptr);
    early_.emplace();
  }

  void record(const ScoreMetrics& score) override {
    if (early_)
      early_->push_back(score);
    else if (recorder_)
      recorder_->record(score);
  }

 private:
  // Lets virtual time pass for each slice of computation.
  class Timed final : public SlicedUpdater {
   public:
    Timed(TrainingWorker& worker, Net& net, std::unique_ptr<Updater> inner)
        : SlicedUpdater(std::move(inner), slices_of(worker.job_, worker.number_, net,
                                                    worker.training_->spec.solver.iter_size())),
          worker_(worker),
          net_(net),
          samples_(static_cast<double>(batch_size(net)) *
                   worker.training_->spec.solver.iter_size()) {}

   private:
    // Returns an error once the job is over.
    Status finish_slice() override {
      worker_.table_.enter();
      return worker_.table_.status();
    }
    void starts_step() override { seconds_ = worker_.draw_seconds(); }
    Status start_slice(double share) override {
      SimulatedTable& table = worker_.table_;
      table.compute(worker_.compute().done(table.now(), seconds_ * share));
      return table.status();
    }
    void ends_step(bool counts, float loss) override {
      worker_.count_iteration(samples_);
      if (counts) {
        worker_.tally_.losses += static_cast<double>(loss);
        ++worker_.tally_.counted;
      }
      std::vector<float>& sums = worker_.running_sums_;
      sums.clear();
      for_each_running_sum(net_, [&](const Tensor& sum) {
        sums.insert(sums.end(), sum.host().begin(), sum.host().end());
      });
    }

    TrainingWorker& worker_;
    Net& net_;
    const double samples_;  // of an iteration
    double seconds_ = 0;    // the time of this iteration
  };

  Status work() override {
    parallel::RunOptions options;
    options.servers = training_->servers;
    if (recorder_) options.meter = &*recorder_;
    options.opened = [this](Solver& solver) {
      if (!recorder_) return;
      recorder_->open(solver);
      for (const ScoreMetrics& score : *early_) recorder_->record(score);
      early_.reset();
    };
    options.wrap = [this](Net& net, std::unique_ptr<Updater> updater) -> std::unique_ptr<Updater> {
      return std::make_unique<Timed>(*this, net, std::move(updater));
    };
    const Result<Ending> ending = parallel::run(training_->spec, options, &table_);
    if (recorder_) recorder_->close();
    return ending.ok() ? Status() : Status(ending.error());
  }

  const std::shared_ptr<const Training> training_;
  std::optional<parallel::Recorder> recorder_;
  std::optional<std::vector<ScoreMetrics>> early_;  // scores from before the recorder was open
};

}  // namespace

Workers make_training_workers(const WorkerSetup& setup) {
  return make_workers<TrainingWorker>(setup, std::make_shared<const Training>(setup));
}

}  // namespace shoal::simulate
