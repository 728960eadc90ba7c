#include "shoal/parallel/run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/parallel/probe.h"
#include "shoal/parallel/replicas.h"
#include "shoal/parallel/row_map.h"
#include "shoal/parallel/scheme_words.h"
#include "shoal/parallel/speed_groups.h"
#include "shoal/parallel/stages.h"
#include "shoal/parallel/updaters.h"
#include "shoal/parallel/worker.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/io.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"
#include "shoal/table/placement.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {
namespace {

// The table may write into a solver's params until its rows were all heard of: where a segment does
// not end with that, before they go.
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

Ending left(std::int64_t iteration) {
  LOG(WARNING) << "Iteration " << iteration
               << ": this process has left the job, which goes on without it";
  return Ending::kLeft;
}

class Run {
 public:
  Run(const SolverParameter& param, const RunOptions& options, table::Table* table)
      : param_(param),
        options_(options),
        table_(table),
        groups_(table, options.meter, files()),
        stages_(stages_of(or_throw(phases_of(param, options.name)))),
        share_(options.share) {
    if (!param_.has_max_iter() && stages_.size() > 1)
      param_.set_max_iter(static_cast<std::int32_t>(stages_.back().end));
    if (!table_) stages_ = alone(std::move(stages_));
    words_ = stage().words;
    if (!table_) return;
    generation_ = table_->roster().generation;
    take_roster();
    if (joins()) begin_late();
    // a part stays who reads it, whatever its number becomes
    if (share_.suffix.empty()) share_.suffix = std::to_string(share_.client);
  }

  Result<Ending> run();

 private:
  void check_phases() const;
  void find_start();
  void find_stage();
  void agree_on_stage();
  Result<bool> measure_links();
  Result<Ending> run_segment();
  Result<Ending> end_segment(const Solver& solver, Result<Ending> ending);
  void begin(Solver& solver);
  void take_roster();
  void begin_late();
  // a job that goes on
  bool joins() const { return table_ && table_->roster().generation > 0 && !begun_; }
  Result<Ending> next_segment(const Solver& solver, Ending ending);
  Result<bool> next_generation(table::SegmentBody end);
  std::vector<table::Clock> clocks() const;
  void next_phase(std::int64_t least);
  Action wanted();
  table::Servers servers() const;
  SolverOptions solver_options();
  std::unique_ptr<Updater> make_updater(Net& net);
  void report(Solver& solver) const;
  std::string placement(Solver& solver) const;
  void report_traffic(std::int64_t iterations) const;
  const Stage& stage() const { return stages_[stage_]; }
  std::int64_t end_of_stage() const {
    return std::min<std::int64_t>(stage().end, param_.max_iter());
  }
  bool chief() const { return !team_ || team_->chief(); }
  ProfileFiles files() const { return {options_.groups_out, options_.data_sharding_out}; }
  bool measures() const { return table_ && options_.measure_servers && chief(); }

  SolverParameter param_;
  const RunOptions& options_;
  table::Table* const table_;   // null: alone
  std::unique_ptr<Team> team_;  // null without a table
  SpeedGroups groups_;
  std::vector<Stage> stages_;
  std::size_t stage_ = 0;
  std::string words_;  // of the scheme, in this generation
  table::Generation generation_ = 0;
  Share share_;
  std::string snapshot_;                        // from which the first segment goes on
  std::shared_ptr<const SolverMemory> memory_;  // from which the next one does, and how
  Solver::Continuation how_;
  std::vector<std::uint32_t> trained_;  // who did, in the last one: ranks
  bool links_are_new_ = false;          // since then
  bool asked_to_measure_ = false;
  std::int64_t first_ = 0;  // iteration of the run
  bool begun_ = false;      // the first segment
};

// What would be wrong in a later phase is wrong now.
void Run::check_phases() const {
  if (options_.profile_only && !(table_ && has_search(stages_)))
    throw ConfigError(
        Code::kUsage, options_.name, ": --profile_only: ",
        table_ ? "no scheme of the run has group_by: SPEED" : "this run has no other workers");
  if (chief()) or_throw(check_writable(files()));
  for (const Stage& stage : stages_) {
    const SolverParameter param = with_phase(param_, stage);
    read_recipe(param, options_.name);
    // a job that goes on: the others have looked, when there were other workers
    if (!table_ || generation_ > 0 || stage.search) continue;
    check_fit(param, options_.name, *or_throw(table::make_scheme(stage.words)), stage.words,
              share_.clients);
  }
}

Result<Ending> Run::run() {
  check_phases();
  if (!joins()) find_start();
  for (;;) {
    const Result<bool> stays = measure_links();
    if (!stays.ok()) return stays.error();
    if (!stays.value()) return left(how_.iteration);
    agree_on_stage();
    Result<Ending> ending = run_segment();
    if (!ending.ok() || ending.value() != Ending::kContinues) return ending;
  }
}

// Nobody asks anything of a job that goes on: its state comes from the chief.
void Run::begin_late() {
  const std::vector<table::Clock> all = clocks();
  how_ = {.iteration = all.at(static_cast<std::size_t>(share_.client)),
          .iterations = all,
          .same_scheme = true,
          .same_members = false};
  stage_ = stage_at(stages_, stage_, how_.iteration);
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
  std::int64_t furthest = 0;
  // none: the solver says so
  if (chief() && file_exists(snapshot_)) {
    const std::vector<std::int64_t> iterations = saved_iterations(snapshot_);
    while (stage_ + 1 < stages_.size() &&
           come_to(stage(), iterations, share_.clients) >= stage().end)
      ++stage_;
    furthest = std::ranges::max(iterations);
  }
  if (team_) stage_ = std::stoull(or_throw(team_->share(std::to_string(stage_))));
  if (team_ && stage().search)
    stages_ = with_profile(
        std::move(stages_), stage_,
        std::stoll(or_throw(team_->share(std::to_string(furthest)))) + stage().search->profile);
  words_ = stage().words;
}

// Whoever comes late to the profile of a run that went on from a snapshot does not know of it.
void Run::agree_on_stage() {
  if (!table_ || generation_ == 0 || !has_search(stages_)) return;
  const std::int64_t end = std::stoll(or_throw(team_->share(str(stage().end))));
  if (end < stage().end) stages_ = with_profile(std::move(stages_), stage_, end);
}

// Where the roster says so a generation measures links instead of training. False: the others go on
// without this process.
Result<bool> Run::measure_links() {
  while (table_ && table_->roster().generation == generation_ && table_->roster().measures) {
    Result<std::vector<double>> found = measure_servers(*table_, *team_, words_);
    if (!found.ok()) table_->abort(found.error());
    if (!found.ok()) return found.error();
    const Result<bool> stays = next_generation({.clock = how_.iteration,
                                                .phase_end = end_of_stage(),
                                                .weights = share_.weights,
                                                .bandwidths = std::move(found).value()});
    if (!stays.ok()) table_->abort(stays.error());
    if (!stays.ok() || !stays.value()) return stays;
    words_ = table_->roster().scheme;
    links_are_new_ = true;
  }
  return true;
}

// To the end of a phase, or of the run.
Result<Ending> Run::run_segment() {
  Solver solver(with_phase(param_, stage()), solver_options());
  Releases releases(table_);
  begin(solver);
  if (table_ && chief())
    groups_.begin(stage(), share_,
                  {.records = options_.epoch ? static_cast<double>(options_.epoch(share_)) : 0,
                   .items = solver.own_items(),
                   .iterations = end_of_stage() - solver.iteration()});
  Result<Ending> ending = solver.solve_until(stage().end);
  if (ending.ok() &&
      (ending.value() == Ending::kContinues || ending.value() == Ending::kRegroups)) {
    Result<std::shared_ptr<const SolverMemory>> memory = solver.save_state();
    if (!memory.ok()) return memory.error();
    memory_ = std::move(memory).value();
    ending = next_segment(solver, ending.value());
    if (ending.ok() && ending.value() == Ending::kContinues) releases.not_needed();
  }
  return table_ ? end_segment(solver, std::move(ending)) : ending;
}

// If another is to begin, nothing; otherwise it was this worker's last.
Result<Ending> Run::end_segment(const Solver& solver, Result<Ending> ending) {
  if (ending.ok() && ending.value() == Ending::kContinues) return ending;
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
  if (!late && table_) how_.same_members = ranks_of(table_->roster()) == trained_;
  how_.iterations = clocks();
  if (memory_ || late) solver.restore_state(std::exchange(memory_, nullptr).get(), how_);
  const auto say_phase = [&] {
    if (options_.phase) options_.phase(table_ ? words_ : "local", solver.iteration());
  };
  if (std::exchange(links_are_new_, false) && chief())
    LOG(INFO) << "Iteration " << solver.iteration() << ": the servers' links were measured"
              << (servers().speeds.empty() ? " and are alike: " : ": ") << placement(solver);
  if (std::exchange(begun_, true)) return say_phase();
  if (chief() && table_) report(solver);
  if (!snapshot_.empty()) solver.restore(snapshot_);
  if (late)
    LOG(WARNING) << "Iteration " << solver.iteration() << ": has joined the job, as worker "
                 << share_.client << " of " << share_.clients;
  first_ = solver.iteration();
  say_phase();
  if (options_.opened) options_.opened(solver);
  LOG(INFO) << "Starting Optimization";
}

// Who this process is in the generation, and its team.
void Run::take_roster() {
  share_.client = table_->worker();
  share_.clients = workers_of(table_->roster());
  share_.in_parts = share_.in_parts || share_.clients > 1;
  share_.weights.clear();
  for (const auto& process : table_->roster().processes)
    if (process.worker >= 0 && process.weight > 0) share_.weights.push_back(process.weight);
  team_ = make_table_team(*table_, generation_);
}

// Of the workers of the generation; none where the roster does not say.
std::vector<table::Clock> Run::clocks() const {
  return table_ && table_->roster().generation == generation_ && generation_ > 0
             ? clocks_of(table_->roster())
             : std::vector<table::Clock>();
}

// All workers are at the end of a segment, each after the iterations of `solver`: what the next one
// is. kLeft: it is the others'; kDone: nobody's, since what was asked for is had.
Result<Ending> Run::next_segment(const Solver& solver, Ending ending) {
  const int workers = share_.clients;
  // whatever the clocks of those who are fast say
  const bool within = ending == Ending::kRegroups && shares_iterations(stage());
  std::optional<SpeedGroups::Found> found;
  how_ = {.iteration = solver.iteration()};
  if (table_) {
    trained_ = ranks_of(table_->roster());
    const Stage* const next = stage_ + 1 < stages_.size() ? &stages_[stage_ + 1] : nullptr;
    auto searched = groups_.find(
        {*team_, table_->roster(), words_, solver.iteration(), solver.own_items()}, stage(), next);
    if (!searched.ok()) return searched.error();
    found = std::move(searched).value();
    if (options_.profile_only && found) return Ending::kDone;
    table::SegmentBody end{.clock = solver.iteration()};
    if (next || within) end.phase_end = end_of_stage();
    if (next && !within) end.next_scheme = next->words;
    if (found)
      end.scheme = stages_[stage().search ? stage_ : stage_ + 1].words = found->words,
      end.weights = found->weights;
    if (generation_ == 0) end.bandwidths = options_.bandwidths;
    const Result<bool> stays = next_generation(std::move(end));
    if (!stays.ok()) return stays.error();
    if (!stays.value()) return Ending::kLeft;
  } else {
    ++generation_;
  }
  std::int64_t least = solver.iteration();
  for (const table::Clock clock : clocks()) least = std::min(least, clock);
  const std::size_t stage_before = stage_;
  next_phase(within ? 0 : least);
  if (!table_) return Ending::kContinues;
  how_.same_scheme = stage_ == stage_before;
  const table::RosterBody& roster = table_->roster();
  if (roster.generation != generation_) return Ending::kContinues;
  if (!roster.scheme.empty()) words_ = roster.scheme;
  if (!roster.why.empty())
    LOG(INFO) << "Iteration " << solver.iteration() << ": goes on with " << share_.clients
              << " workers, after " << workers << ", in scheme " << words_ << ", since "
              << roster.why;
  return Ending::kContinues;
}

// False: it is the others'.
Result<bool> Run::next_generation(table::SegmentBody end) {
  end.measures = measures();
  Result<bool> stays = table_->regroup(end);
  if (!stays.ok() || !stays.value()) return stays;
  ++generation_;
  take_roster();
  return stays;
}

// If the slowest worker has come to the end of one.
void Run::next_phase(std::int64_t least) {
  param_.clear_weights();
  while (stage_ + 1 < stages_.size() && least >= stage().end) {
    const std::string before = std::exchange(words_, stages_[++stage_].words);
    LOG(INFO) << "Iteration " << least << ": scheme " << before << " ends, " << words_
              << " begins, until iteration " << stage().end;
  }
}

// What somebody outside wants, or the chief by itself.
Action Run::wanted() {
  if (const Action own = options_.action ? options_.action() : Action::kNone; own != Action::kNone)
    return own;
  const bool measure = measures() && generation_ == 0 && servers_of(table_->roster()) > 1 &&
                       !std::exchange(asked_to_measure_, true);
  return measure || groups_.due() ? Action::kRegroup : Action::kNone;
}

table::Servers Run::servers() const {
  if (options_.servers) return *options_.servers;
  return servers_of(table_->roster(), table_->roster().generation > 0
                                          ? bandwidths_of(table_->roster())
                                          : options_.bandwidths);
}

SolverOptions Run::solver_options() {
  SolverOptions options;
  options.threads = options_.threads;
  options.name = options_.name;
  options.action = [this] { return wanted(); };
  options.share = share_;
  options.team = team_.get();
  options.observer = options_.observer;
  options.meter = &groups_.meter();
  if (options_.epoch) options.epoch = options_.epoch(share_);
  if (table_ && !or_throw(table::make_scheme(words_))->lockstep())
    options.averaging = "each worker's mean gradient is an update of its own";
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
    worker.generation = generation_;
    worker.servers = servers();
    updater = make_table_updater(param, net, *table_, worker);
  } else {
    updater = make_local_updater(param, options_.name, net);
  }
  if (net.context().share().replicas > 1)
    updater = make_replicas(param, options_.name, net, std::move(updater));
  return options_.wrap ? options_.wrap(net, std::move(updater)) : std::move(updater);
}

// "7 rows of params on 2 servers, with 40000, 8000 bytes, by the bandwidths of their links: 1e+08,
// 2e+07 bytes/s".
std::string Run::placement(Solver& solver) const {
  const table::Servers on = servers();
  const RowMap map(solver.net(), on, {.stays = is_alone(table_->roster())});
  std::vector<std::string> bytes, bandwidths;
  for (const std::size_t each : table::bytes_per_server(map.rows(), on.count))
    bytes.push_back(str(each));
  for (const table::ServerSpeed& server : on.speeds)
    bandwidths.push_back(str(static_cast<float>(server.bandwidth)));
  return str(map.rows().size(), " rows of params on ", on.count,
             on.count == 1 ? " server" : " servers", ", with ", join(bytes), " bytes",
             bandwidths.empty()
                 ? ""
                 : str(", by the bandwidths of their links: ", join(bandwidths), " bytes/s"));
}

void Run::report(Solver& solver) const {
  LOG(INFO) << "Scheme " << words_ << "; " << placement(solver);
  const std::string caution = or_throw(table::make_scheme(words_))->caution(share_.clients);
  if (!caution.empty()) LOG(WARNING) << "Scheme " << words_ << ": " << caution;
}

// Of this process, as worker and as server, with all that is not params: tests, snapshots,
// heartbeats.
void Run::report_traffic(std::int64_t iterations) const {
  const table::Traffic all = table_->traffic();
  const auto each = [&](std::uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(1, iterations));
  };
  LOG(INFO) << "Traffic: " << each(all.bytes_sent) << " bytes sent and " << each(all.bytes_received)
            << " received an iteration, " << each(all.local_bytes) << " within this process";
}

}  // namespace

Result<Ending> run(const SolverParameter& param, const RunOptions& options, table::Table* table) {
  return Run(param, options, table).run();
}

}  // namespace shoal::parallel
