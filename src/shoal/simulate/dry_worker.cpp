// A worker without numbers: it waits, sends and lets time pass as one that trains does. What it
// sends has a size and no values.
#include <algorithm>
#include <numeric>

#include "shoal/parallel/exchange_choice.h"
#include "shoal/parallel/factor_layers.h"
#include "shoal/parallel/pacer_client.h"
#include "shoal/parallel/plan.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/tuning/link_times.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulated_worker.h"
#include "shoal/solver/recipe.h"

namespace shoal::simulate {
namespace {

using table::RowId;

// A slice of computation between two actions on the table.
struct DrySlice {
  std::vector<RowId> needs{};  // must have arrived before it, in a task's first step
  std::vector<RowId> sends{};  // are pushed when it begins, in a task's last step
  double share = 0;            // its part of a step's time
  // By worker, of a layer whose gradients travel as factors: the rows of its message. A slice that
  // asks for them needs the last ones before.
  std::vector<std::vector<RowId>> asks{}, tells{};
};

// The work of every worker in a phase.
struct DryPhase {
  table::Plan plan;
  table::Task task;
  bool bounded = true;
  std::vector<DrySlice> slices;  // of a step
  std::vector<RowId> all, learning;
  std::vector<RowId> rest;  // the learning rows that no slice sends
  table::Clock end = 0;     // the clock after its last task
};

// The work of every worker in the job, derived once from the net and the schemes.
class DryJob {
 public:
  explicit DryJob(const WorkerSetup& setup) : setup_(setup) {
    Context context(
        Context::Options{.threads = 1, .share = {.client = 0, .clients = setup.job.workers()}});
    Net net(train_net_of(setup.spec.solver, setup.spec.name, context.share()), context);
    std::uint32_t longest = 0;
    for (const parallel::Phase& given : setup.spec.phases) {
      const DryPhase& phase = phases.emplace_back(phase_of(net, given));
      asks = asks || phase.task.paced || phase.task.judged || setup.spec.phases.size() > 1;
      for (const table::Row& row : phase.plan.rows) longest = std::max(longest, row.length);
    }
    samples = static_cast<double>(batch_size(net)) * recipe_.iter_size;
    numbers_.resize(longest);
  }

  std::vector<DryPhase> phases;
  bool asks = false;   // workers ask the coordinator, in some phase
  double samples = 0;  // of an iteration
  // Returns what stands for the values of a row.
  std::span<float> row(const DryPhase& phase, RowId row) {
    return std::span(numbers_).first(phase.plan.rows[row].length);
  }

 private:
  DryPhase phase_of(Net& net, const parallel::Phase& given) const {
    const SolverParameter& solver = setup_.spec.solver;
    const std::string& name = setup_.spec.name;
    const SimulatedJob& job = setup_.job;
    const auto scheme = or_throw(given.scheme.make());
    parallel::check_fit(solver, name, *scheme, job.workers());
    const table::Task task = scheme->task();
    const bool gradients = task.contribution == table::ContributionKind::kGradient;
    const bool averages = task.momentum == table::MomentumPolicy::kAverage;
    const auto local = !gradients && averages ? make_local_updater(solver, name, net) : nullptr;
    const Layers factors = parallel::by_factors(
        net,
        parallel::choose_exchanges(net, solver, name, *scheme, {job.workers(), job.servers()}));
    const parallel::RowMap map(
        net, setup_.servers,
        {.running_sums = !gradients,
         .histories = local ? local->state().histories() : std::vector<Tensor*>(),
         .stays = gradients && parallel::is_alone(job.roster()),
         .replicated = factors});
    const table::Clock start = phases.empty() ? 0 : phases.back().end;
    DryPhase phase{
        .plan = parallel::plan_of(recipe_, map.rows(), job.roster(), start, {},
                                  {.name = name,
                                   .scheme = given.scheme.words(),
                                   .generation = static_cast<table::Generation>(phases.size())}),
        .task = task,
        .bounded = scheme->bounded(),
        .slices = {},
        .all = std::vector<RowId>(map.rows().size()),
        .learning = map.learning(),
        .rest = {},
        .end = given.end};
    if (parallel::factor_timing(given.scheme).value_or(parallel::FactorTiming()).staleness > 0 &&
        std::ranges::count(factors, true) > 0)
      throw ConfigError(Code::kConfig, name,
                        ": --dry knows factors under bsp alone, and the scheme is '",
                        scheme->name(), "'");
    if (!gradients) phase.plan.clip = -1;  // each worker clips its own gradients
    std::iota(phase.all.begin(), phase.all.end(), RowId{0});
    // a layer's rows are pushed as soon as its gradients are complete
    const bool early = !task.judged && (gradients || (recipe_.clip < 0 && !task.pull_first));
    const auto sends = add_slices(map, slices_of(job, 0, net, recipe_.iter_size), phase);
    for (const RowId row : phase.learning) {
      const bool with_layer = early && (gradients || map.is_param(row) || map.is_history(row));
      (with_layer ? phase.slices[sends[map.rows()[row].priority]].sends : phase.rest)
          .push_back(row);
    }
    for (std::size_t i = 0; i < factors.size(); ++i)
      if (factors[i]) add_factors(net, static_cast<int>(i), sends[i], phase);
    return phase;
  }

  // The layer's messages, asked for before its forward pass and sent after its backward pass.
  void add_factors(const Net& net, int layer, std::size_t sends, DryPhase& phase) const {
    const auto before = static_cast<std::size_t>(layer);
    Factored::Sizes sizes = dynamic_cast<const Factored&>(*net.layers()[before]).factor_sizes();
    sizes.rows *= recipe_.iter_size;
    std::vector<std::vector<RowId>> messages;
    for (const std::uint16_t server : parallel::servers_by_worker(setup_.job.roster()))
      messages.push_back(
          parallel::add_message(sizes, layer, messages.size(), server, 0, phase.plan.rows));
    phase.slices[phase.slices.size() - sends].asks = messages;
    phase.slices[sends].tells = std::move(messages);
  }

  // Returns, by layer, the slice that begins when its gradients are complete.
  static std::vector<std::size_t> add_slices(const parallel::RowMap& map,
                                             const ComputeSlices& shares, DryPhase& phase) {
    const std::size_t layers = shares.has_params.size();
    std::vector<std::size_t> complete(layers);
    phase.slices = {{.share = shares.begin}};
    for (std::size_t i = 0; i < layers; ++i) {
      const auto needed = map.needed_by(static_cast<int>(i));
      if (shares.has_params[i])
        phase.slices.push_back({{needed.begin(), needed.end()}, {}, shares.forward[i]});
    }
    for (std::size_t i = layers; i-- > 0;) {
      if (!shares.has_params[i]) continue;
      complete[i] = phase.slices.size();
      phase.slices.push_back({.share = shares.backward[i]});
    }
    return complete;
  }

  const WorkerSetup setup_;
  const Recipe recipe_ = read_recipe(setup_.spec.solver, setup_.spec.name);
  std::vector<float> numbers_;
};

class DryWorker final : public SimulatedWorker {
 public:
  DryWorker(const WorkerSetup& setup, int number, std::shared_ptr<DryJob> dry)
      : SimulatedWorker(setup, number), dry_(std::move(dry)) {}

 private:
  const table::Task& task() const { return phase_->task; }

  // Workers that nothing keeps in step come to the end of a phase one after the other. The others
  // do not wait for the pushes of one that has.
  Status work() override {
    for (const DryPhase& phase : dry_->phases) {
      phase_ = &phase;
      run_phase();
      if (dry_->asks && !phase.bounded)
        or_throw(table_.ask(table::Topic::kMeet, table::Clock{phase.plan.generation} << 32,
                            encode(table::Meeting::kEnd)));
      clock_ = phase.end;  // where workers share iterations: the mean of all
    }
    if (dry_->asks) table_.tell(table::Topic::kDone, clock_, {});
    if (!dry_->asks || phase_->bounded)
      table_.retire({.clock = clock_, .generation = phase_->plan.generation});
    table_.release();
    return {};
  }

  void run_phase() {
    const auto initial = [this](RowId row, table::Part part) {
      return part == table::Part::kWeights ? dry_->row(*phase_, row) : std::span<float>();
    };
    const auto destination = [this](RowId row, table::Part) { return dry_->row(*phase_, row); };
    or_throw(table_.create(phase_->plan, initial, destination));
    pacer_.emplace(table_, task(), waits_, phase_->end);
    if (task().is_planned())
      pacer_->exchange_takes(or_throw(parallel::measure_exchange(table_, phase_->plan)));
    get(phase_->all);
    while ((clock_ != phase_->end || task().shared) && may_begin()) run_task();
    wait(phase_->all);
  }

  bool may_begin() {
    if (!task().paced) return true;
    if (!task().asks_early) wait(phase_->all);
    if (or_throw(pacer_->begin(clock_)) == Begin::kOver) return false;
    if (pacer_->start().reread && task().contribution != table::ContributionKind::kWeights) {
      get(phase_->learning);
      wait(phase_->learning);
    }
    return true;
  }

  void run_task() {
    if (task().pull_first) {
      wait(phase_->all);
      push(phase_->learning);
    }
    pacer_->task_begins();
    table::Verdict verdict = table::Verdict::kAnother;
    while (verdict == table::Verdict::kAnother) {
      step();
      if (pacer_->wanted() <= pacer_->steps()) verdict = or_throw(pacer_->judge(clock_));
    }
    if (!task().pull_first) push(phase_->rest, verdict == table::Verdict::kDrop);
    ++clock_;
  }

  void step() {
    seconds_ = draw_seconds();
    slice_ = phase_->slices.begin();
    run_slices();
    double counted = 0;  // slice by slice
    or_throw(table_.wait_until([this] { return slice_ == phase_->slices.end(); }, counted));
    count_iteration(dry_->samples);
    pacer_->step_done(dry_->samples);
    if (task().pull_first && pacer_->steps() == 1) wait(phase_->learning);
  }

  // Takes the rest of the step's slices, from one event to the next. The thread is not needed for
  // that: to resume it for each slice would take longer than all else.
  void run_slices() {
    if (slice_ == phase_->slices.end()) return table_.wake();
    const bool reads = pacer_->steps() == 0 && !task().pull_first;
    const table::Instant since = table_.now();
    std::vector<RowId> needs;
    if (reads) needs = slice_->needs;
    for (const auto& rows : slice_->asks) needs.insert(needs.end(), rows.begin(), rows.end());
    table_.when_arrived(needs, [this, since] {
      const table::Instant from = table_.now();
      waits_.add(from - since);
      table_.figures.rows += to_seconds(from - since);
      ask_for_factors();
      if (pacer_->steps() + 1 == pacer_->wanted()) push(slice_->sends);
      if (!slice_->tells.empty()) push(slice_->tells[static_cast<std::size_t>(number_)]);
      const double share = slice_++->share;
      if (share <= 0) return run_slices();
      setup_.job.time().at(compute().done(from, seconds_ * share), [this, from] {
        table_.figures.compute += to_seconds(table_.now() - from);
        run_slices();
      });
    });
  }

  void ask_for_factors() {
    for (std::size_t worker = 0; worker < slice_->asks.size(); ++worker)
      for (const RowId row : slice_->asks[worker])
        if (static_cast<int>(worker) != number_) table_.get(row, clock_ + 1, table::Part::kWeights);
  }
  void wait(std::span<const RowId> rows) { or_throw(waits_.wait(rows)); }
  void get(std::span<const RowId> rows) {
    for (const RowId row : rows) table_.get(row, clock_, table::Part::kWeights);
  }
  void push(std::span<const RowId> rows, bool empty = false) {
    for (const RowId row : rows) {
      const auto numbers = empty ? std::span<const float>() : dry_->row(*phase_, row);
      const table::Push push{.row = row,
                             .clock = clock_,
                             .kind = task().contribution,
                             .weight = empty ? 0.0f : 1.0f,
                             .rate = 1,
                             .payload = table::as_payload({numbers, nullptr})};
      table_.push(std::span(&push, 1));
    }
  }

  const std::shared_ptr<DryJob> dry_;
  const DryPhase* phase_ = nullptr;
  table::Clock clock_ = 0;
  parallel::RowWaits waits_{table_};
  std::optional<parallel::PacerClient> pacer_;
  double seconds_ = 0;                           // the time of this step
  std::vector<DrySlice>::const_iterator slice_;  // the next of this step
};

}  // namespace

Workers make_dry_workers(const WorkerSetup& setup) {
  return make_workers<DryWorker>(setup, std::make_shared<DryJob>(setup));
}

}  // namespace shoal::simulate
