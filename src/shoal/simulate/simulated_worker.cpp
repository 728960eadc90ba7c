#include "shoal/simulate/simulated_worker.h"

#include <algorithm>
#include <utility>

#include "shoal/net/net.h"
#include "shoal/parallel/job_spec.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/net.pb.h"
#include "shoal/simulate/compute_model.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/sliced_updater.h"

namespace shoal::simulate {

// Lets virtual time pass for each slice of computation.
class SimulatedWorker::Timed final : public SlicedUpdater {
 public:
  Timed(SimulatedWorker& worker, Net& net, std::unique_ptr<Updater> inner, ComputeSlices slices)
      : SlicedUpdater(std::move(inner), std::move(slices)),
        worker_(worker),
        net_(net),
        items_(static_cast<double>(batch_size(net)) * worker.options_.param.iter_size()) {}

 private:
  const Compute& compute() const { return worker_.job_.process_of(worker_.number_).compute; }

  // Returns an error once the job is over.
  Status finish_slice() override {
    worker_.table_.enter();
    return worker_.table_.status();
  }
  void starts_step() override { seconds_ = compute().draw(worker_.drawn_++, worker_.random_); }
  Status start_slice(double share) override {
    SimulatedTable& table = worker_.table_;
    table.compute(compute().done(table.now(), seconds_ * share));
    return table.status();
  }
  void ends_step(bool counts, float loss) override {
    Tally& tally = worker_.tally_;
    ++worker_.iterations_;
    ++tally.iterations;
    worker_.samples_ += items_;
    tally.samples += items_;
    if (counts) {
      tally.losses += static_cast<double>(loss);
      ++tally.counted;
    }
    worker_.running_sums_.clear();
    for_each_running_sum(net_, [&](const Tensor& sum) {
      worker_.running_sums_.insert(worker_.running_sums_.end(), sum.host().begin(),
                                   sum.host().end());
    });
  }

  SimulatedWorker& worker_;
  Net& net_;
  const double items_;  // samples of an iteration
  double seconds_ = 0;  // the time of this iteration
};

SimulatedWorker::SimulatedWorker(SimulatedJob& job, int number,
                                 const SimulatedWorkerOptions& options, ComputeSlots& slots,
                                 Tally& tally)
    : job_(job),
      number_(number),
      options_(options),
      tally_(tally),
      thread_(slots),
      table_(job, number, thread_),
      random_(options.seed, static_cast<std::uint64_t>(number)) {
  if (options.record.metrics.empty() && options.record.esync_logs.empty()) return;
  parallel::RecorderOptions record = options.record;
  record.run.worker = number;
  recorder_.emplace(record, &table_, nullptr);
  early_.emplace();
}

SimulatedWorker::~SimulatedWorker() = default;

void SimulatedWorker::record(const ScoreMetrics& score) {
  if (early_)
    early_->push_back(score);
  else if (recorder_)
    recorder_->record(score);
}

WorkerFigures SimulatedWorker::figures() const {
  return {.iterations = iterations_,
          .samples = samples_,
          .seconds = ended_at_,
          .compute = table_.times().compute,
          .rows = table_.times().rows,
          .others = table_.times().others,
          .traffic = job_.traffic(number_)};
}

void SimulatedWorker::start() {
  job_.time().at(Instant{}, [this] { thread_.resume(); });
  thread_.start([this] { run(); });
}

void SimulatedWorker::run() {
  Status outcome;
  try {
    outcome = train();
  } catch (const ConfigError& error) {
    outcome = error.error();
  }
  table_.enter();
  if (!outcome.ok()) table_.abort(outcome.error());
  ended_at_ = to_seconds(table_.now());
}

Status SimulatedWorker::train() {
  parallel::RunOptions options;
  options.servers = options_.servers;
  if (recorder_) options.meter = &*recorder_;
  options.opened = [this](Solver& solver) {
    if (!recorder_) return;
    recorder_->open(solver);
    for (const ScoreMetrics& score : *early_) recorder_->record(score);
    early_.reset();
  };
  options.wrap = [this](Net& net, std::unique_ptr<Updater> updater) -> std::unique_ptr<Updater> {
    return std::make_unique<Timed>(*this, net, std::move(updater),
                                   slices_of(net, shares_of(net, job_.process_of(number_).compute),
                                             options_.param.iter_size(), job_.cluster().overlap));
  };
  const Result<Ending> ending =
      parallel::run(parallel::read_job_spec(options_.param, options_.name), options, &table_);
  if (recorder_) recorder_->close();
  return ending.ok() ? Status() : Status(ending.error());
}

}  // namespace shoal::simulate
