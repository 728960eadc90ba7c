// A worker without numbers: it waits, sends and lets time pass as one that trains does. What it
// sends has a size and no values.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "shoal/net/net.h"
#include "shoal/parallel/pacer_client.h"
#include "shoal/parallel/plan.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/tuning/link_times.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/simulate/simulated_worker.h"
#include "shoal/solver/recipe.h"
#include "shoal/table/scheme.h"

namespace shoal::simulate {
namespace {

using table::RowId;

// A slice of computation between two actions on the table.
struct DrySlice {
  std::vector<RowId> needs;  // must have arrived before it, in a task's first step
  std::vector<RowId> sends;  // are pushed when it begins, in a task's last step
  double share = 0;          // its part of a step's time
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
  explicit DryJob(const WorkerSetup& setup) {
    const Recipe recipe = read_recipe(setup.param, setup.options.name);
    Context context(
        Context::Options{.threads = 1, .share = {.client = 0, .clients = setup.job.workers()}});
    Net net(train_net_of(setup.param, setup.options.name, context.share()), context);
    table::Clock start = 0;
    for (const parallel::Phase& phase : setup.phases) {
      phases.push_back(phase_of(setup, recipe, net, phase, start));
      start = phases.back().end;
      const table::Task& task = phases.back().task;
      asks = asks || task.paced || task.judged || phases.size() > 1;
    }
    samples = static_cast<double>(batch_size(net)) * recipe.iter_size;
    std::uint32_t longest = 0;
    for (const DryPhase& phase : phases)
      for (const table::Row& row : phase.plan.rows) longest = std::max(longest, row.length);
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
  DryPhase phase_of(const WorkerSetup& setup, const Recipe& recipe, Net& net,
                    const parallel::Phase& given, table::Clock start) const {
    const std::string& name = setup.options.name;
    const SimulatedJob& job = setup.job;
    const auto scheme = given.scheme.make();
    if (!scheme.ok()) throw ConfigError(scheme.error().code, name, ": ", scheme.error().message);
    if (const std::string unfit = scheme.value()->unfit(job.workers()); !unfit.empty())
      throw ConfigError(Code::kConfig, name, ": scheme '", given.scheme.words(), "': ", unfit);
    const table::Task task = scheme.value()->task();
    const bool gradients = task.contribution == table::ContributionKind::kGradient;
    const bool averages = task.momentum == table::MomentumPolicy::kAverage;
    const auto local = gradients ? nullptr : make_local_updater(setup.param, name, net);
    const parallel::RowMap map(
        net, servers_of(job.cluster(), setup.options),
        {.running_sums = !gradients,
         .histories = averages && local ? local->state().histories() : std::vector<Tensor*>(),
         .stays = gradients && parallel::is_alone(job.roster())});
    DryPhase phase{
        .plan = parallel::plan_of(recipe, map.rows(), job.roster(), start, {},
                                  {.name = name,
                                   .scheme = given.scheme.words(),
                                   .generation = static_cast<table::Generation>(phases.size())}),
        .task = task,
        .bounded = scheme.value()->bounded(),
        .slices = {},
        .all = std::vector<RowId>(map.rows().size()),
        .learning = map.learning(),
        .rest = {},
        .end = start + given.iterations};
    if (!gradients) phase.plan.clip = -1;  // each worker clips its own gradients
    std::iota(phase.all.begin(), phase.all.end(), RowId{0});
    // a layer's rows are pushed as soon as its gradients are complete
    const bool early = !task.judged && (gradients || (recipe.clip < 0 && !task.pull_first));
    const auto sent_early = [&](RowId row) {
      return early && (gradients || map.is_param(row) || map.is_history(row));
    };
    std::ranges::remove_copy_if(phase.learning, std::back_inserter(phase.rest), sent_early);
    add_slices(map, slices_of(job, 0, net, recipe.iter_size), sent_early, phase);
    return phase;
  }

  template <class SentEarly>
  static void add_slices(const parallel::RowMap& map, const ComputeSlices& shares,
                         SentEarly sent_early, DryPhase& phase) {
    phase.slices = {{.needs = {}, .sends = {}, .share = shares.begin}};
    const std::size_t layers = shares.has_params.size();
    for (std::size_t i = 0; i < layers; ++i) {
      const auto needed = map.needed_by(static_cast<int>(i));
      if (shares.has_params[i])
        phase.slices.push_back({{needed.begin(), needed.end()}, {}, shares.forward[i]});
    }
    for (std::size_t i = layers; i-- > 0;) {
      if (!shares.has_params[i]) continue;
      phase.slices.push_back({{}, {}, shares.backward[i]});
      for (const RowId row : map.owned_by(static_cast<int>(i)))
        if (map.rows()[row].learns && sent_early(row)) phase.slices.back().sends.push_back(row);
    }
  }

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
    table_.when_arrived(reads ? slice_->needs : std::span<const RowId>(), [this, since] {
      const table::Instant from = table_.now();
      waits_.add(from - since);
      table_.figures.rows += to_seconds(from - since);
      if (pacer_->steps() + 1 == pacer_->wanted()) push(slice_->sends);
      const double share = slice_++->share;
      if (share <= 0) return run_slices();
      job_.time().at(compute().done(from, seconds_ * share), [this, from] {
        table_.figures.compute += to_seconds(table_.now() - from);
        run_slices();
      });
    });
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
  const auto dry = std::make_shared<DryJob>(setup);
  Workers workers;
  for (int number = 0; number < setup.job.workers(); ++number)
    workers.push_back(std::make_unique<DryWorker>(setup, number, dry));
  return workers;
}

}  // namespace shoal::simulate
