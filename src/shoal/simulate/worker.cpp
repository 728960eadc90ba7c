#include "shoal/simulate/worker.h"

#include <algorithm>
#include <utility>

#include "shoal/net/net.h"
#include "shoal/parallel/run.h"
#include "shoal/proto/net.pb.h"
#include "shoal/simulate/segmented.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"

namespace shoal::simulate {

// Virtual time passes for what the solver computes between two calls.
class SimulatedWorker::Timed final : public Segmented {
 public:
  Timed(SimulatedWorker& worker, Net& net, std::unique_ptr<Updater> inner, const Segments& segments)
      : Segmented(std::move(inner), segments),
        worker_(worker),
        net_(net),
        items_(static_cast<double>(batch_size(net)) * worker.plan_.param.iter_size()) {}

 private:
  const Compute& compute() const { return worker_.job_.process_of(worker_.number_).compute; }

  // An error when the job is over: what comes after that does not count.
  Status arrive() override {
    worker_.table_.enter();
    return worker_.table_.status();
  }
  void starts() override { seconds_ = compute().draw(worker_.drawn_++, worker_.random_); }
  Status pass(double share) override {
    SimulatedTable& table = worker_.table_;
    table.compute(compute().done(table.now(), seconds_ * share));
    return table.status();
  }
  void ends(bool counts, float loss) override {
    Tally& tally = worker_.tally_;
    ++worker_.iterations_;
    ++tally.iterations;
    worker_.samples_ += items_;
    tally.samples += items_;
    if (counts) tally.losses += static_cast<double>(loss), ++tally.counted;
    worker_.running_sums_.clear();
    for_each_running_sum(net_, [&](const Tensor& sum) {
      worker_.running_sums_.insert(worker_.running_sums_.end(), sum.host().begin(),
                                   sum.host().end());
    });
  }

  SimulatedWorker& worker_;
  Net& net_;
  const double items_;  // of an iteration
  double seconds_ = 0;  // of this one
};

SimulatedWorker::SimulatedWorker(SimulatedJob& job, int number, const WorkerPlan& plan,
                                 Desks& desks, Tally& tally)
    : job_(job),
      number_(number),
      plan_(plan),
      tally_(tally),
      actor_(desks),
      table_(job, number, actor_),
      random_(plan.seed, static_cast<std::uint64_t>(number)) {
  if (plan.record.metrics.empty() && plan.record.esync_logs.empty()) return;
  parallel::RecorderOptions record = plan.record;
  record.run.worker = number;
  recorder_.emplace(record, &table_, nullptr);
  early_.emplace();
}

void SimulatedWorker::record(const ScoreMetrics& score) {
  if (early_)
    early_->push_back(score);
  else if (recorder_)
    recorder_->record(score);
}

SimulatedWorker::~SimulatedWorker() = default;

void SimulatedWorker::start() {
  job_.time().at(Instant{}, [this] { actor_.turn(); });
  thread_ = std::jthread([this] { run(); });
}

void SimulatedWorker::run() {
  actor_.begin();
  try {
    outcome_ = train();
  } catch (const ConfigError& error) {
    outcome_ = error.error();
  }
  table_.enter();
  if (!outcome_.ok()) table_.abort(outcome_.error());
  ended_at_ = to_seconds(table_.now());
  actor_.end();
}

Status SimulatedWorker::train() {
  parallel::RunOptions options;
  options.name = plan_.name;
  options.servers = plan_.servers;
  if (recorder_) options.meter = &*recorder_;
  options.opened = [this](Solver& solver) {
    if (!recorder_) return;
    recorder_->open(solver);
    for (const ScoreMetrics& score : *early_) recorder_->record(score);
    early_.reset();
  };
  options.wrap = [this](Net& net, std::unique_ptr<Updater> updater) -> std::unique_ptr<Updater> {
    const Segments segments = segments_of(net, shares_of(net, job_.process_of(number_).compute),
                                          plan_.param.iter_size(), job_.cluster().overlap);
    return std::make_unique<Timed>(*this, net, std::move(updater), segments);
  };
  const Result<Ending> ending = parallel::run(plan_.param, options, &table_);
  if (recorder_) recorder_->close();
  return ending.ok() ? Status() : Status(ending.error());
}

}  // namespace shoal::simulate
