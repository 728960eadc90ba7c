#include "worker.h"

#include <algorithm>
#include <utility>

#include "shoal/net/net.h"
#include "shoal/parallel/worker.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/solver.h"

namespace shoal::simulate {

// Calls the real updater, and lets virtual time pass for what the solver computes until the next call.
class SimulatedWorker::Timed final : public Updater {
 public:
  Timed(SimulatedWorker& worker, Net& net, std::unique_ptr<Updater> inner, const Segments& segments)
      : worker_(worker), net_(net), inner_(std::move(inner)), segments_(segments) {}

  Status begin(std::int64_t iteration, float rate) override {
    if (Status status = enter(); !status.ok()) return status;
    if (Status status = inner_->begin(iteration, rate); !status.ok()) return status;
    seconds_ = compute().draw(drawn_++, worker_.random_);
    return pass(segments_.begin);
  }
  Status before_forward(int layer) override {
    if (!acts(layer)) return inner_->before_forward(layer);
    if (Status status = enter(); !status.ok()) return status;
    if (Status status = inner_->before_forward(layer); !status.ok()) return status;
    return pass(segments_.forward[static_cast<std::size_t>(layer)]);
  }
  Status after_backward(int layer) override {
    if (!acts(layer)) return inner_->after_backward(layer);
    if (Status status = enter(); !status.ok()) return status;
    if (Status status = inner_->after_backward(layer); !status.ok()) return status;
    return pass(segments_.backward[static_cast<std::size_t>(layer)]);
  }
  float mean_loss(float own) override { return loss_ = inner_->mean_loss(own); }

  Result<Outcome> update(std::int64_t iteration, float rate, NonFinite when) override {
    if (Status status = enter(); !status.ok()) return status.error();
    Result<Outcome> outcome = inner_->update(iteration, rate, when);
    if (outcome.ok() && outcome.value() == Outcome::kApplied) done(true);
    return outcome;
  }
  Status skip(std::int64_t iteration) override {
    if (Status status = enter(); !status.ok()) return status;
    Status status = inner_->skip(iteration);
    done(false);
    return status;
  }
  bool clears_gradients() const override { return inner_->clears_gradients(); }
  Status settle() override { return inner_->settle(); }
  Status refresh() override { return inner_->refresh(); }
  std::optional<double> seconds_waited() const override { return inner_->seconds_waited(); }
  Status prepare_save() override { return inner_->prepare_save(); }
  void save(SolverState& state) const override { inner_->save(state); }
  void restore(const SolverState& state, const std::string& file) override { inner_->restore(state, file); }
  void start_at(std::int64_t iteration) override { inner_->start_at(iteration); }
  void put_states(RunState& run) override { inner_->put_states(run); }
  void take_states(const RunState& run, const std::string& file) override { inner_->take_states(run, file); }

 private:
  const Compute& compute() const { return worker_.job_.process_of(worker_.number_).compute; }
  bool acts(int layer) const { return segments_.acts[static_cast<std::size_t>(layer)]; }

  // An error when the job is over: what comes after that does not count.
  Status enter() {
    worker_.table_.enter();
    return worker_.table_.status();
  }

  // A part of the iteration's time.
  Status pass(double share) {
    SimulatedTable& table = worker_.table_;
    table.compute(compute().done(table.now(), seconds_ * share));
    return table.status();
  }

  void done(bool counts) {
    Tally& tally = worker_.tally_;
    ++worker_.iterations_;
    ++tally.iterations;
    tally.samples += worker_.items_;
    if (counts) tally.losses += static_cast<double>(loss_), ++tally.counted;
    worker_.running_sums_.clear();
    for_each_running_sum(net_, [&](const Tensor& sum) { worker_.running_sums_.insert(worker_.running_sums_.end(), sum.host().begin(), sum.host().end()); });
  }

  SimulatedWorker& worker_;
  Net& net_;
  const std::unique_ptr<Updater> inner_;
  const Segments segments_;
  double seconds_ = 0;                         // of this iteration
  std::size_t drawn_ = 0;
  float loss_ = 0;
};

// One iteration: the first batch's forward, the batches between, the last one's backward.
Segments segments_of(const Net& net, const LayerShares& shares, int iter_size, bool overlap) {
  const std::size_t layers = net.layers().size();
  Segments segments{0, std::vector<double>(layers), std::vector<double>(layers), std::vector<bool>(layers)};
  for (std::size_t i = 0; i < layers; ++i) segments.acts[i] = !net.layers()[i]->params().empty();
  double* now = &segments.begin;
  for (std::size_t i = 0; i < layers; ++i) {
    if (segments.acts[i]) now = &segments.forward[i];
    *now += shares.forward[i] / iter_size;
  }
  if (!overlap) segments.begin = 0, std::ranges::fill(segments.forward, 0), *now = 1;
  else *now += 1 - 1.0 / iter_size;
  for (std::size_t i = layers; i-- > 0 && overlap;) {
    *now += shares.backward[i] / iter_size;
    if (segments.acts[i]) now = &segments.backward[i];
  }
  return segments;
}

SimulatedWorker::SimulatedWorker(SimulatedJob& job, int number, const WorkerPlan& plan, Desks& desks, Tally& tally)
    : job_(job), number_(number), plan_(plan), tally_(tally), actor_(desks), table_(job, number, actor_),
      random_(plan.seed, static_cast<std::uint64_t>(number)) {}

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
  struct Released {
    SimulatedTable& table;
    ~Released() { table.release(); }
  };
  const std::unique_ptr<Team> team = parallel::make_table_team(table_);
  SolverOptions options;
  options.name = plan_.name;
  options.share = {.client = number_, .clients = job_.workers()};
  options.team = team.get();
  options.make_updater = [this, &options](Net& net) -> std::unique_ptr<Updater> {
    const parallel::WorkerOptions worker{.name = plan_.name, .scheme = plan_.scheme, .weight = contribution_weight(plan_.param, plan_.name, options.share)};
    const Segments segments = segments_of(net, shares_of(net, job_.process_of(number_).compute), plan_.param.iter_size(), job_.cluster().overlap);
    return std::make_unique<Timed>(*this, net, parallel::make_table_updater(plan_.param, net, table_, worker), segments);
  };
  Solver solver(plan_.param, options);
  const Released released{table_};             // before the solver's params go
  items_ = static_cast<double>(solver.items_per_update()) / job_.workers();
  const Result<Ending> ending = solver.solve();
  if (!ending.ok()) return ending.error();
  return table_.finish(solver.iteration());
}

}  // namespace shoal::simulate
