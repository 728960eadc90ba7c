#include "shoal/parallel/run.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/parallel/replicas.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"
#include "shoal/table/placement.h"
#include "shoal/table/scheme.h"
#include "updaters.h"

namespace shoal::parallel {
namespace {

// The table may write into a solver's params until its rows were all heard of: where a segment does not end with that, before they go.
class Releases {
 public:
  explicit Releases(table::Table* table) : table_(table) {}
  ~Releases() {
    if (table_) table_->release();
  }
  void not_needed() { table_ = nullptr; }

 private:
  table::Table* table_;
};

// A phase, and the iteration at which it ends.
struct Stage : Phase { std::int64_t end = 0; };

// One at least, the last to the end of the run.
std::vector<Stage> stages_of(const std::vector<Phase>& phases) {
  std::vector<Stage> stages;
  std::int64_t end = 0;
  for (const Phase& phase : phases) stages.push_back({phase, end += phase.iterations});
  if (stages.empty()) stages.push_back({{.iterations = 0, .words = "bsp"}, 0});
  return stages;
}

// Without others, schemes make no difference.
std::vector<Stage> alone(std::vector<Stage> stages) {
  const auto same = [](const Stage& one, const Stage& next) { return one.base_lr == next.base_lr && one.test_interval == next.test_interval; };
  for (std::size_t i = 1; i < stages.size();) {
    if (same(stages[i - 1], stages[i])) stages.erase(stages.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    else ++i;
  }
  return stages;
}

bool shares_iterations(const Stage& stage) { return or_throw(table::make_scheme(stage.words))->task().shared; }

std::vector<std::uint32_t> ranks_of(const table::RosterBody& roster) {
  std::vector<std::uint32_t> ranks;
  for (const auto& process : roster.processes)
    if (process.worker >= 0) ranks.push_back(process.rank);
  return ranks;
}

Ending left(std::int64_t iteration) {
  LOG(WARNING) << "Iteration " << iteration << ": this process has left the job, which goes on without it";
  return Ending::kLeft;
}

class Run {
 public:
  Run(const SolverParameter& param, const RunOptions& options, table::Table* table)
      : param_(param), options_(options), table_(table), stages_(stages_of(or_throw(phases_of(param, options.name)))), share_(options.share) {
    if (!param_.has_max_iter() && stages_.size() > 1) param_.set_max_iter(static_cast<std::int32_t>(stages_.back().end));
    if (!table_) stages_ = alone(std::move(stages_));
    words_ = stage().words;
    if (!table_) return;
    epoch_ = table_->roster().epoch;
    take_roster();
    if (joins()) begin_late();
    if (share_.suffix.empty()) share_.suffix = std::to_string(share_.client);    // a part stays who reads it, whatever its number becomes
  }

  Result<Ending> run();

 private:
  void check_phases() const;
  void find_start();
  void find_stage();
  std::int64_t come_to(const std::vector<std::int64_t>& iterations) const;
  Result<Ending> run_segment();
  void begin(Solver& solver);
  void take_roster();
  void begin_late();
  bool joins() const { return table_ && table_->roster().epoch > 0 && !begun_; }   // a job that goes on
  Result<bool> next_segment(const Solver& solver, Ending ending);
  std::vector<table::Clock> clocks() const;
  void next_phase(std::int64_t least);
  SolverOptions solver_options();
  std::unique_ptr<Updater> make_updater(Net& net);
  void report(Solver& solver) const;
  void report_traffic(std::int64_t iterations) const;
  const Stage& stage() const { return stages_[stage_]; }
  std::int64_t end_of_stage() const { return std::min<std::int64_t>(stage().end, param_.max_iter()); }
  bool chief() const { return !team_ || team_->chief(); }

  SolverParameter param_;
  const RunOptions& options_;
  table::Table* const table_;                // null: alone
  std::unique_ptr<Team> team_;               // null without a table
  std::vector<Stage> stages_;
  std::size_t stage_ = 0;
  std::string words_;                        // of the scheme, in this epoch
  table::Epoch epoch_ = 0;
  Share share_;
  std::string snapshot_;                     // from which the first segment goes on
  std::shared_ptr<const SolverMemory> memory_;   // from which the next one does, and how
  Solver::Continuation how_;
  std::int64_t first_ = 0;                   // iteration of the run
  bool begun_ = false;                       // the first segment
};

// What would be wrong in a later phase is wrong now.
void Run::check_phases() const {
  for (const Stage& stage : stages_) {
    const SolverParameter param = with_phase(param_, stage);
    read_recipe(param, options_.name);
    if (!table_ || epoch_ > 0) continue;     // a job that goes on: the others have looked, when there were other workers
    check_fit(param, options_.name, *or_throw(table::make_scheme(stage.words)), stage.words, share_.clients);
  }
}

Result<Ending> Run::run() {
  check_phases();
  if (!joins()) find_start();
  for (;;) {
    Result<Ending> ending = run_segment();
    if (!ending.ok() || (ending.value() != Ending::kContinues && ending.value() != Ending::kRegroups)) return ending;
  }
}

// Nobody asks anything of a job that goes on: its state comes from the chief.
void Run::begin_late() {
  const std::vector<table::Clock> all = clocks();
  how_ = {.iteration = all.at(static_cast<std::size_t>(share_.client)), .iterations = all, .same_scheme = true, .same_members = false};
  while (stage_ + 1 < stages_.size() && how_.iteration >= stage().end) ++stage_;
  words_ = table_->roster().scheme;
  param_.clear_weights();
}

void Run::find_start() {
  if (options_.before && team_) options_.before(*team_, share_);
  snapshot_ = team_ ? or_throw(team_->share(chief() ? options_.snapshot : "")) : options_.snapshot;
  if (!snapshot_.empty()) param_.clear_weights();
  find_stage();
}

// A run that goes on from a snapshot may do so in a later phase than the first.
void Run::find_stage() {
  if (snapshot_.empty() || stages_.size() == 1) return;
  if (chief() && file_exists(snapshot_)) {                              // none: the solver says so
    const std::vector<std::int64_t> iterations = saved_iterations(snapshot_);
    while (stage_ + 1 < stages_.size() && come_to(iterations) >= stage().end) ++stage_;
  }
  if (team_) stage_ = std::stoull(or_throw(team_->share(std::to_string(stage_))));
  words_ = stage().words;
}

// How far the workers of a snapshot are in this stage, which ends for all at once. Where each goes on from its own iteration, the slowest counts, or what
// all have done.
std::int64_t Run::come_to(const std::vector<std::int64_t>& iterations) const {
  const auto scheme = or_throw(table::make_scheme(stage().words));
  if (scheme->bounded() || iterations.size() != static_cast<std::size_t>(std::max(1, share_.clients))) return iterations[0];
  if (!scheme->task().shared) return std::ranges::min(iterations);
  return std::accumulate(iterations.begin(), iterations.end(), std::int64_t{0}) / static_cast<std::int64_t>(iterations.size());
}

// To the end of a phase, or of the run.
Result<Ending> Run::run_segment() {
  Solver solver(with_phase(param_, stage()), solver_options());
  Releases releases(table_);
  begin(solver);
  Result<Ending> ending = solver.solve_until(stage().end);
  if (ending.ok() && (ending.value() == Ending::kContinues || ending.value() == Ending::kRegroups)) {
    Result<std::shared_ptr<const SolverMemory>> memory = solver.save_state();
    if (!memory.ok()) return memory.error();
    memory_ = std::move(memory).value();
    const Result<bool> stays = next_segment(solver, ending.value());
    if (!stays.ok()) return stays.error();
    if (!stays.value()) return left(solver.iteration());
    releases.not_needed();
    return ending;
  }
  if (!table_) return ending;
  if (ending.ok() && ending.value() == Ending::kLeft) return left(solver.iteration());
  if (!ending.ok()) {
    table_->abort(ending.error());
    return ending;
  }
  if (Status status = table_->finish(solver.iteration()); !status.ok()) return status.error();
  LOG(INFO) << "Iteration " << solver.iteration() << ": scheme " << words_ << " ends";
  report_traffic(solver.iteration() - first_);
  return ending;
}

void Run::begin(Solver& solver) {
  const bool late = joins();
  if (memory_ || late) solver.restore_state(std::exchange(memory_, nullptr).get(), how_);
  const auto say_phase = [&] {
    if (options_.phase) options_.phase(table_ ? words_ : "local", solver.iteration());
  };
  if (std::exchange(begun_, true)) return say_phase();
  if (chief() && table_) report(solver);
  if (!snapshot_.empty()) solver.restore(snapshot_);
  if (late) LOG(WARNING) << "Iteration " << solver.iteration() << ": has joined the job, as worker " << share_.client << " of " << share_.clients;
  first_ = solver.iteration();
  say_phase();
  if (options_.opened) options_.opened(solver);
  LOG(INFO) << "Starting Optimization";
}

// Who this process is in the epoch, and its team.
void Run::take_roster() {
  share_.client = table_->worker();
  share_.clients = workers_of(table_->roster());
  share_.in_parts = share_.in_parts || share_.clients > 1;
  team_ = make_table_team(*table_, epoch_);
}

// Of the workers of the epoch; none where the roster does not say.
std::vector<table::Clock> Run::clocks() const {
  std::vector<table::Clock> clocks;
  if (table_ && table_->roster().epoch == epoch_ && epoch_ > 0)
    for (const auto& process : table_->roster().processes)
      if (process.worker >= 0) clocks.push_back(process.clock);
  return clocks;
}

// All workers are at the end of a segment, each after the iterations of `solver`: what the next one is. False: it is the others'.
Result<bool> Run::next_segment(const Solver& solver, Ending ending) {
  std::int64_t least = solver.iteration();
  const int workers = share_.clients;
  const bool within = ending == Ending::kRegroups && shares_iterations(stage());   // whatever the clocks of those who are fast say
  const std::vector<std::uint32_t> ranks = table_ ? ranks_of(table_->roster()) : std::vector<std::uint32_t>();
  if (table_) {
    table::SegmentBody end{.clock = solver.iteration()};
    if (stage_ + 1 < stages_.size() || within) end.phase_end = end_of_stage();
    if (stage_ + 1 < stages_.size() && !within) end.next_scheme = stages_[stage_ + 1].words;
    const Result<bool> stays = table_->regroup(end);
    if (!stays.ok() || !stays.value()) return stays;
  }
  ++epoch_;
  for (const table::Clock clock : clocks()) least = std::min(least, clock);
  const std::size_t stage_before = stage_;
  next_phase(within ? 0 : least);
  how_ = {.iteration = solver.iteration(), .iterations = clocks()};
  if (!table_) return true;
  take_roster();
  const table::RosterBody& roster = table_->roster();
  how_.same_scheme = stage_ == stage_before;
  how_.same_members = ranks_of(roster) == ranks;
  if (roster.epoch != epoch_) return true;
  if (!roster.scheme.empty()) words_ = roster.scheme;
  if (!roster.why.empty())
    LOG(INFO) << "Iteration " << solver.iteration() << ": goes on with " << share_.clients << " workers, after " << workers << ", in scheme " << words_ << ", since "
              << roster.why;
  return true;
}

// If the slowest worker has come to the end of one.
void Run::next_phase(std::int64_t least) {
  param_.clear_weights();
  while (stage_ + 1 < stages_.size() && least >= stage().end) {
    const std::string before = std::exchange(words_, stages_[++stage_].words);
    LOG(INFO) << "Iteration " << least << ": scheme " << before << " ends, " << words_ << " begins, until iteration " << stage().end;
  }
}

SolverOptions Run::solver_options() {
  SolverOptions options;
  options.threads = options_.threads;
  options.name = options_.name;
  options.action = options_.action;
  options.share = share_;
  options.team = team_.get();
  options.observer = options_.observer;
  options.meter = options_.meter;
  if (options_.epoch) options.epoch = options_.epoch(share_);
  if (table_ && !or_throw(table::make_scheme(words_))->lockstep()) options.averaging = "each worker's mean gradient is an update of its own";
  options.make_updater = [this](Net& net) { return make_updater(net); };
  return options;
}

std::unique_ptr<Updater> Run::make_updater(Net& net) {
  const SolverParameter param = with_phase(param_, stage());
  std::unique_ptr<Updater> updater;
  if (table_) {
    WorkerOptions worker;
    worker.name = options_.name;
    worker.scheme = words_;
    worker.weight = contribution_weight(param, options_.name, share_);
    worker.until = end_of_stage();
    worker.epoch = epoch_;
    updater = make_table_updater(param, net, *table_, worker);
  } else {
    updater = make_local_updater(param, options_.name, net);
  }
  if (net.context().share().replicas > 1) updater = make_replicas(param, options_.name, net, std::move(updater));
  return options_.wrap ? options_.wrap(net, std::move(updater)) : std::move(updater);
}

void Run::report(Solver& solver) const {
  const int servers = servers_of(table_->roster());
  const RowMap map(solver.net(), servers, {.stays = is_alone(table_->roster())});
  std::string bytes;
  for (const std::size_t each : table::bytes_per_server(map.rows(), servers)) bytes += str(bytes.empty() ? "" : ", ", each);
  LOG(INFO) << "Scheme " << words_ << "; " << map.rows().size() << " rows of params on " << servers << (servers == 1 ? " server" : " servers")
            << ", with " << bytes << " bytes";
  const std::string caution = or_throw(table::make_scheme(words_))->caution(share_.clients);
  if (!caution.empty()) LOG(WARNING) << "Scheme " << words_ << ": " << caution;
}

// Of this process, as worker and as server, with all that is not params: tests, snapshots, heartbeats.
void Run::report_traffic(std::int64_t iterations) const {
  const table::Traffic all = table_->traffic();
  const auto each = [&](std::uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(1, iterations)); };
  LOG(INFO) << "Traffic: " << each(all.bytes_sent) << " bytes sent and " << each(all.bytes_received) << " received an iteration, "
            << each(all.local_bytes) << " within this process";
}

}  // namespace

Result<Ending> run(const SolverParameter& param, const RunOptions& options, table::Table* table) { return Run(param, options, table).run(); }

}  // namespace shoal::parallel
