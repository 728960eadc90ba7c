#include "worker.h"

#include <algorithm>
#include <utility>

#include "segmented.h"
#include "shoal/net/net.h"
#include "shoal/proto/net.pb.h"
#include "shoal/parallel/worker.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/solver.h"

namespace shoal::simulate {

// Virtual time passes for what the solver computes between two calls.
class SimulatedWorker::Timed final : public Segmented {
 public:
  Timed(SimulatedWorker& worker, Net& net, std::unique_ptr<Updater> inner, const Segments& segments)
      : Segmented(std::move(inner), segments), worker_(worker), net_(net) {}

 private:
  const Compute& compute() const { return worker_.job_.process_of(worker_.number_).compute; }

  // An error when the job is over: what comes after that does not count.
  Status arrive() override {
    worker_.table_.enter();
    return worker_.table_.status();
  }
  void starts() override { seconds_ = compute().draw(drawn_++, worker_.random_); }
  Status pass(double share) override {
    SimulatedTable& table = worker_.table_;
    table.compute(compute().done(table.now(), seconds_ * share));
    return table.status();
  }
  void ends(bool counts, float loss) override {
    Tally& tally = worker_.tally_;
    ++worker_.iterations_;
    ++tally.iterations;
    tally.samples += worker_.items_;
    if (counts) tally.losses += static_cast<double>(loss), ++tally.counted;
    worker_.running_sums_.clear();
    for_each_running_sum(net_, [&](const Tensor& sum) { worker_.running_sums_.insert(worker_.running_sums_.end(), sum.host().begin(), sum.host().end()); });
  }
  void over() override { worker_.measure(); }

  SimulatedWorker& worker_;
  Net& net_;
  double seconds_ = 0;                         // of this iteration
  std::size_t drawn_ = 0;
};

SimulatedWorker::SimulatedWorker(SimulatedJob& job, int number, const WorkerPlan& plan, Desks& desks, Tally& tally)
    : job_(job), number_(number), plan_(plan), tally_(tally), actor_(desks), table_(job, number, actor_),
      random_(plan.seed, static_cast<std::uint64_t>(number)) {
  if (plan.out.empty()) return;
  const RunMetrics run{.name = plan.param.train_net_param().name(), .scheme = plan.scheme, .worker = number, .workers = job.workers(), .simulated = true};
  metrics_ = or_throw(MetricsWriter::open(metrics_path(plan.out, number), run, 0));
}

void SimulatedWorker::add(const ScoreMetrics& score) {
  if (metrics_) or_throw(metrics_->add(score));
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

// A line for each clock that it has pushed.
void SimulatedWorker::measure() {
  if (!metrics_ || table_.pushed() == measured_.clock) return;
  const Measured now{table_.now(), table_.pushed(), iterations_, table_.times(), table_.traffic()};
  const Measured& then = measured_;
  ClockMetrics clock;
  clock.worker = number_;
  clock.clock = then.clock;
  clock.time = to_seconds(now.time);
  clock.compute = now.times.compute - then.times.compute;
  clock.row_wait = now.times.rows - then.times.rows;
  clock.other = now.times.others - then.times.others;
  clock.bytes_sent = now.traffic.bytes_sent - then.traffic.bytes_sent;
  clock.bytes_received = now.traffic.bytes_received - then.traffic.bytes_received;
  if (const double bandwidth = job_.process_of(number_).bandwidth; bandwidth > 0) {
    clock.send = static_cast<double>(clock.bytes_sent) / bandwidth;
    clock.receive = static_cast<double>(clock.bytes_received) / bandwidth;
  }
  clock.local_steps = static_cast<std::uint64_t>(now.iterations - then.iterations);
  clock.samples = static_cast<double>(clock.local_steps) * items_;
  clock.steps.assign(clock.local_steps, {.compute = clock.compute / static_cast<double>(clock.local_steps)});
  clock.pushes = job_.take_staleness(number_);
  if (const Status added = metrics_->add(clock); !added.ok()) job_.fail(added.error());
  measured_ = now;
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
