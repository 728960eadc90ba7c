// A worker that trains: a real solver with real gradients and data.
#include "shoal/parallel/recorder.h"
#include "shoal/parallel/run.h"
#include "shoal/simulate/simulated_worker.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/sliced_updater.h"

namespace shoal::simulate {
namespace {

class TrainingWorker final : public SimulatedWorker {
 public:
  TrainingWorker(const WorkerSetup& setup, const Place& place) : SimulatedWorker(setup, place) {
    if (place.joins) joining_ = setup.failures->asks();
    const SimulationOptions& options = setup.options;
    if (options.out.empty() && options.esync_logs.empty()) return;
    const table::SchemeSpec& scheme = setup.spec.phases[0].scheme;
    const bool local_steps =
        or_throw(scheme.make())->contribution() != table::ContributionKind::kGradient;
    recorder_.emplace(parallel::RecorderOptions{.metrics = options.out,
                                                .esync_logs = options.esync_logs,
                                                .run = {.scheme = scheme.words(),
                                                        .worker = static_cast<int>(place.rank),
                                                        .workers = setup.job.workers(),
                                                        .simulated = true},
                                                .local_steps = local_steps},
                      &table_, nullptr);
    early_.emplace();
  }

  void record(const ScoreMetrics& score) override {
    if (early_)
      early_->push_back(score);
    else if (recorder_)
      recorder_->record(score);
  }
  void be_lost() override {
    FailureAccount& account = *setup_.failures;
    if (joining_)
      account.gives_up(*joining_);
    else
      account.lose(setup_.job.time().now(), setup_.job.roster().generation);
  }
  // Takes the pushes of a worker that is there for merged, unless a scheme drops them: some may be
  // on their way.
  void account() const override {
    const auto finished = static_cast<double>(finished_);
    const auto [merged, dropped] = setup_.job.pushed(place_.rank);
    setup_.failures->add_steps(
        finished + static_cast<double>(cut_off_),
        (is_lost() ? merged : finished - dropped) - static_cast<double>(table_.made_again()));
  }

 private:
  // Returns the items of an iteration of this worker in a phase, over those of all workers' mean
  // when all of the cluster are there, in a phase with the solver's own batch and iter_size.
  static double work_of(const WorkerSetup& setup, const SolverParameter& solver,
                        const Share& share) {
    const parallel::JobSpec& spec = setup.spec;
    const auto items = [&](const SolverParameter& of) {
      return static_cast<double>(std::max<std::int64_t>(1, written_batch(of, spec.name))) *
             of.iter_size();
    };
    // The workers that are left divide the batch of all.
    const double each = solver.batch_semantics() == SolverParameter::GLOBAL
                            ? static_cast<double>(setup.job.cluster().workers()) / share.clients
                            : 1;
    return contribution_weight(solver, spec.name, share) * each * items(solver) /
           items(spec.solver);
  }

  // Lets virtual time pass for each slice of computation.
  class Timed final : public SlicedUpdater {
   public:
    Timed(TrainingWorker& worker, Net& net, std::unique_ptr<Updater> inner,
          const SolverParameter& solver)
        : SlicedUpdater(std::move(inner),
                        slices_of(worker.setup_.job, worker.place_.rank, net, solver.iter_size())),
          worker_(worker),
          net_(net),
          work_(work_of(worker.setup_, solver, net.context().share())),
          samples_(static_cast<double>(batch_size(net)) * solver.iter_size()) {}
    // A failure ends it in the middle of a task: its own, or another's that interrupts all.
    ~Timed() override {
      if (began_ && (worker_.is_lost() || worker_.table_.status().ok())) ++worker_.cut_off_;
    }

   private:
    // Returns an error once the job is over.
    Status finish_slice() override {
      worker_.table_.enter();
      return worker_.table_.status();
    }
    void starts_step() override {
      seconds_ = work_ * worker_.draw_seconds();
      if (!worker_.setup_.failures || began_) return;
      const Instant now = worker_.table_.now();
      if (last_)
        worker_.setup_.failures->step(static_cast<std::size_t>(worker_.place_.number), *last_, now);
      else
        worker_.setup_.failures->trains(worker_.table_.roster().generation);
      began_ = last_ = now;
    }
    Status start_slice(double share) override {
      SimulatedTable& table = worker_.table_;
      table.compute(worker_.compute().done(table.now(), seconds_ * share));
      return table.status();
    }
    void ends_step(bool counts, float loss) override {
      worker_.count_iteration(samples_);
      if (counts) {
        worker_.setup_.tally.losses += static_cast<double>(loss);
        ++worker_.setup_.tally.counted;
      }
      std::vector<float>& sums = worker_.running_sums_;
      sums.clear();
      for_each_running_sum(net_, [&](const Tensor& sum) {
        sums.insert(sums.end(), sum.host().begin(), sum.host().end());
      });
      keep_own_params();
    }
    void ends_task() override {
      worker_.table_.task_ends();
      ++worker_.finished_;
      began_.reset();
    }
    Status settle(Settle how) override {
      Status status = SlicedUpdater::settle(how);
      worker_.table_.enter();
      if (status.ok()) keep_own_params();
      return status;
    }
    void keep_own_params() {
      const Plan* plan = worker_.setup_.job.shard(0).plan();
      if (worker_.table_.worker() != 0 || plan == nullptr || plan->rows.all().back().writer < 0)
        return;
      std::vector<float>& own = worker_.setup_.tally.own_params;
      own.clear();
      for (const NetParam& param : net_.params())
        own.insert(own.end(), param.blob->data.host().begin(), param.blob->data.host().end());
    }

    TrainingWorker& worker_;
    Net& net_;
    const double work_;     // of an iteration, beside what the cluster says the time of
    const double samples_;  // of an iteration
    double seconds_ = 0;    // the time of this iteration
    // When the task under way began, and when the last one did in this generation.
    std::optional<Instant> began_, last_;
  };

  // Returns false if the job is done, which takes no one any more.
  Result<bool> join() {
    const Result<bool> joins = table_.join();
    TRY(joins);
    if (joins.value())
      setup_.failures->joins(*std::exchange(joining_, {}), table_.now(),
                             table_.roster().generation);
    return joins;
  }

  Status work() override {
    if (place_.joins) {
      const Result<bool> joins = join();
      TRY(joins);
      if (!joins.value()) return {};
    }
    parallel::RunOptions options;
    if (place_.joins) options.share.suffix = std::to_string(place_.number);
    options.servers = setup_.servers;
    options.updates_beside = false;  // keep_own_params reads what they would write
    if (recorder_) options.meter = &*recorder_;
    options.opened = [this](Solver& solver) {
      if (!recorder_) return;
      recorder_->open(solver);
      for (const ScoreMetrics& score : *early_) recorder_->record(score);
      early_.reset();
    };
    options.wrap = [this](Net& net, std::unique_ptr<Updater> updater,
                          const SolverParameter& solver) -> std::unique_ptr<Updater> {
      return std::make_unique<Timed>(*this, net, std::move(updater), solver);
    };
    const Result<Ending> ending = parallel::run(setup_.spec, options, &table_);
    const Status written = recorder_ ? recorder_->close() : Status();
    return ending.ok() ? written : Status(ending.error());
  }

  std::optional<std::size_t> joining_;       // its number in the account, until it takes part
  std::int64_t finished_ = 0, cut_off_ = 0;  // tasks
  std::optional<parallel::Recorder> recorder_;
  std::optional<std::vector<ScoreMetrics>> early_;  // scores from before the recorder was open
};

}  // namespace

Workers make_training_workers(const WorkerSetup& setup) {
  return make_workers<TrainingWorker>(setup);
}
std::unique_ptr<SimulatedWorker> make_training_worker(const WorkerSetup& setup,
                                                      const Place& place) {
  return std::make_unique<TrainingWorker>(setup, place);
}

}  // namespace shoal::simulate
