#include "shoal/parallel/run.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/layers/factored.h"
#include "shoal/parallel/job/job_spec.h"
#include "shoal/parallel/job/membership.h"
#include "shoal/parallel/replicas/replicas.h"
#include "shoal/parallel/sums/mpi_sum.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/loss_scaling.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/recoverable.h"
#include "shoal/solver/snapshot.h"
#include "shoal/table/in_vain.h"

namespace shoal::parallel {
namespace {

// Releases the table before a segment's params go, where the segment does not end in order: the
// table may write into a solver's params until its rows have all arrived.
class Releases {
 public:
  explicit Releases(JobMembership& job) : job_(&job) {}
  ~Releases() {
    if (job_) job_->release();
  }
  void not_needed() { job_ = nullptr; }

 private:
  JobMembership* job_;
};

// Returns a phase's scheme. Groups that are yet to be found do not change its traits, so any stand
// for them.
std::unique_ptr<table::Scheme> scheme_of(const Phase& phase) {
  table::SchemeSpec spec = phase.scheme;
  if (phase.search) spec.groups = table::Groups{{0}};
  return or_throw(spec.make());
}

// Returns how far workers with these iterations are in a phase, which ends for all at once. Where
// each goes on from its own iteration (then there is one for each of the workers), it is the
// slowest one's, or the mean if they share iterations.
std::int64_t come_to(const table::Scheme& scheme, const std::vector<std::int64_t>& iterations,
                     int workers) {
  if (scheme.bounded() || iterations.size() != static_cast<std::size_t>(std::max(1, workers)))
    return iterations[0];
  if (!scheme.task.shared) return std::ranges::min(iterations);
  return std::accumulate(iterations.begin(), iterations.end(), std::int64_t{0}) /
         static_cast<std::int64_t>(iterations.size());
}

// Joins neighbouring phases that differ in scheme alone, which makes no difference to one worker;
// the last one's scheme stays.
void join_for_one(std::vector<Phase>& phases) {
  const auto same = [](const Phase& one, const Phase& next) {
    return one.own == next.own && one.batch_size == next.batch_size;
  };
  phases.erase(phases.begin(), std::unique(phases.rbegin(), phases.rend(), same).base());
}

Ending left(std::int64_t iteration) {
  LOG(WARNING) << "Iteration " << iteration
               << ": this process has left the job, which goes on without it";
  return Ending::kLeft;
}

bool hands_over_factors(const std::unique_ptr<Layer>& layer) {
  const auto* factored = dynamic_cast<const Factored*>(layer.get());
  return factored && factored->factors_go_to();
}

class Run {
 public:
  Run(const JobSpec& spec, const RunOptions& options, JobMembership& job)
      : spec_(spec), name_(spec.name), options_(options), job_(job) {
    take_spec();
  }

  Result<Ending> run() {
    job_.check(param_, phases_);
    for (const Phase& phase : phases_) read_recipe(with_phase(param_, phase), name_);
    const auto scheme = job_.joined();
    starts_ = !scheme;
    if (scheme) begin_late(*scheme);
    for (;;) {
      Result<Ending> ending = run_generation();
      while (!ending.ok() && table::is_in_vain(ending.error())) ending = begin_anew();
      if (!ending.ok() || ending.value() != Ending::kContinues) return ending;
    }
  }

 private:
  void take_spec() {
    param_ = spec_.solver;
    phases_ = spec_.phases;
    if (phases_.empty()) phases_.emplace_back();
    if (!param_.has_max_iter() && phases_.size() > 1)
      param_.set_max_iter(static_cast<std::int32_t>(phases_.back().end));
    if (!team()) join_for_one(phases_);
    phase_ = 0;
    scheme_ = phase().scheme;
  }

  Result<Ending> run_generation() {
    try {
      if (starts_) find_start();
      const Result<bool> stays = job_.prepare(how_.iteration, end_of_phase(), scheme_);
      TRY(stays);
      if (!stays.value()) return left(how_.iteration);
      agree_on_phase();
      return run_segment();
    } catch (const ConfigError& error) {
      if (!table::is_in_vain(error.error())) throw;
      return error.error();
    }
  }

  // Goes on with the state in which this worker was to begin, and another chief.
  Result<Ending> begin_anew() {
    const Result<bool> stays = job_.begin_anew(how_.iteration, end_of_phase(), scheme_);
    TRY(stays);
    if (!stays.value()) return left(how_.iteration);
    if (starts_) {
      const table::SchemeSpec scheme = scheme_;
      take_spec();
      phases_[0].scheme = scheme_ = scheme;
      begun_ = false;
    } else if (memory_ == nullptr) {
      begin_late(scheme_);
    }
    return Ending::kContinues;
  }

  // Begins a process that joins a job which is training. Its state comes from the chief.
  void begin_late(const table::SchemeSpec& scheme) {
    late_ = true;
    const std::vector<std::int64_t> all = job_.clocks();
    how_ = {.iteration = all.at(static_cast<std::size_t>(job_.share().client)),
            .iterations = all,
            .same_scheme = true,
            .same_members = false};
    while (phase_ + 1 < phases_.size() && how_.iteration >= phase().end) ++phase_;
    scheme_ = scheme;
    param_.clear_weights();
  }

  void find_start() {
    if (options_.before && team()) options_.before(*team(), job_.share());
    // A chief that is lost has said its own, and the next one goes on from that.
    if (chief() && !knows_snapshot_)
      snapshot_ = options_.find_snapshot ? options_.find_snapshot() : options_.snapshot;
    if (team()) snapshot_ = or_throw(team()->share(chief() ? snapshot_ : ""));
    knows_snapshot_ = true;
    if (!snapshot_.empty()) param_.clear_weights();
    find_phase();
  }

  // A run that goes on from a snapshot may do so in a later phase than the first.
  void find_phase() {
    if (snapshot_.empty() || phases_.size() == 1) return;
    std::int64_t furthest = 0;
    // If there is no such file, the solver reports it.
    if (chief() && file_exists(snapshot_)) {
      const std::vector<std::int64_t> iterations = saved_iterations(snapshot_);
      while (phase_ + 1 < phases_.size() &&
             come_to(*scheme_of(phase()), iterations, job_.share().clients) >= phase().end)
        ++phase_;
      furthest = std::ranges::max(iterations);
    }
    phase_ = static_cast<std::size_t>(share(static_cast<std::int64_t>(phase_)));
    if (team() && phase().search) insert_profile(share(furthest) + phase().search->profile);
    scheme_ = phase().scheme;
  }

  // Inserts a profile if the phase, which begins here without groups, searches for them.
  void insert_profile(std::int64_t end) {
    if (phase().search)
      phases_.insert(phases_.begin() + static_cast<std::ptrdiff_t>(phase_),
                     profile_of(phase(), end));
  }

  // Agrees on the phase: a process that joins during the profile of a run which went on from a
  // snapshot learns its end.
  void agree_on_phase() {
    if (!has_search(phases_) || !job_.has_other_plans()) return;
    const std::int64_t end = share(phase().end);
    if (end < phase().end) insert_profile(end);
  }

  // Runs to the end of a phase, or of the run.
  Result<Ending> run_segment() {
    Solver solver(with_phase(param_, phase()), solver_options());
    Releases releases(job_);
    Result<Ending> ending = train(solver);
    if (!ending.ok() && table::is_in_vain(ending.error())) {
      releases.not_needed();  // no row has been asked for
      return ending;
    }
    if (!ending.ok() && is_without_params(ending.error())) {
      ending = begin_anew();
      if (ending.ok()) releases.not_needed();
      return ending;
    }
    while (ending.ok() &&
           (ending.value() == Ending::kContinues || ending.value() == Ending::kRegroups)) {
      ending = leave_segment(solver, ending.value());
      if (ending.ok() && ending.value() == Ending::kContinues) {
        releases.not_needed();
        break;
      }
      // The loss of a process has interrupted all on their way to the next segment.
      if (!ending.ok() && is_interruption(ending.error())) ending = solver.recover();
    }
    return end_segment(solver, std::move(ending));
  }

  Result<Ending> train(Solver& solver) {
    try {
      begin(solver);
      job_.begin(solver, phase(), end_of_phase());
    } catch (const ConfigError& error) {
      if (!table::is_in_vain(error.error())) throw;
      return error.error();
    }
    return solver.solve_until(phase().end);
  }

  // Takes the solver's state along to the next segment.
  Result<Ending> leave_segment(Solver& solver, Ending ending) {
    Result<std::shared_ptr<const SolverMemory>> memory = solver.save_state();
    TRY(memory);
    memory_ = std::move(memory).value();
    starts_ = false;
    return next_segment(solver, ending);
  }

  // Finishes or aborts the worker's part, unless another segment is to begin.
  Result<Ending> end_segment(const Solver& solver, Result<Ending> ending) {
    if (!ending.ok()) {
      job_.abort(ending.error());
      return ending;
    }
    if (ending.value() == Ending::kContinues) return ending;
    if (ending.value() == Ending::kLeft) return left(solver.iteration());
    const Status status = job_.finish(solver.iteration(), solver.iteration() - first_, scheme_);
    TRY(status);
    return ending;
  }

  void begin(Solver& solver) {
    const bool late = std::exchange(late_, false);
    const bool is_first = !std::exchange(begun_, true);
    if (!late) how_.same_members = job_.same_workers();
    how_.iterations = job_.clocks();
    if (memory_ || late) solver.restore_state(memory_.get(), how_);
    steps_ = 0;
    job_.report(solver, scheme_, is_first);
    if (is_first && !snapshot_.empty()) solver.restore(snapshot_);
    if (is_first) first_ = solver.iteration();
    if (options_.phase) options_.phase(team() ? scheme_.words() : "local", solver.iteration());
    if (!is_first || std::exchange(opened_, true)) return;
    if (options_.opened) options_.opened(solver);
    LOG(INFO) << "Starting Optimization";
  }

  // Moves on to the next segment. All workers are at the end of one, this one after the iterations
  // of `solver`.
  Result<Ending> next_segment(const Solver& solver, Ending ending) {
    // A phase whose iterations are shared goes on, however far the clocks of fast workers are.
    const bool within = ending == Ending::kRegroups && scheme_of(phase())->task.shared;
    const Result<SegmentStart> result =
        job_.next({.iteration = solver.iteration(),
                   .items = solver.own_items(),
                   .phase = phase(),
                   .next = phase_ + 1 < phases_.size() ? &phases_[phase_ + 1] : nullptr,
                   .phase_end = end_of_phase(),
                   .within = within,
                   .scheme = scheme_});
    TRY(result);
    const SegmentStart& start = result.value();
    if (start.ending != Ending::kContinues) return start.ending;
    if (start.found) phases_[phase().search ? phase_ : phase_ + 1].scheme = *start.found;
    how_ = {.iteration = solver.iteration()};
    std::int64_t least = solver.iteration();
    for (const std::int64_t clock : job_.clocks()) least = std::min(least, clock);
    const std::size_t phase_before = phase_;
    next_phase(within ? 0 : least);
    how_.same_scheme = phase_ == phase_before;
    if (start.scheme) scheme_ = *start.scheme;
    return Ending::kContinues;
  }

  // Moves on to the next phase if the slowest worker has reached the end of this one.
  void next_phase(std::int64_t least) {
    param_.clear_weights();
    while (phase_ + 1 < phases_.size() && least >= phase().end) {
      const table::SchemeSpec before = std::exchange(scheme_, phases_[++phase_].scheme);
      LOG(INFO) << "Iteration " << least << ": scheme " << before.words() << " ends, "
                << scheme_.words() << " begins, until iteration " << phase().end;
    }
  }

  Action wanted() {
    steps_ = std::min(steps_ + 1, 2);
    if (steps_ > 1) memory_.reset();  // the rows exist, and hold what it has
    if (const Action own = options_.action ? options_.action() : Action::kNone;
        own != Action::kNone)
      return own;
    if (job_.wants_snapshot()) return Action::kSnapshot;
    return job_.wants_regroup() ? Action::kRegroup : Action::kNone;
  }

  SolverOptions solver_options() {
    SolverOptions options = options_;
    options.name = name_;
    options.action = [this] { return wanted(); };
    const bool lockstep = team() && or_throw(scheme_.make())->lockstep;
    options.share = job_.share();
    options.share.in_step = lockstep;
    options.team = team();
    options.meter = job_.meter();
    if (options_.records) options.epoch = options_.records(job_.share());
    if (team() && !lockstep)
      options.averaging = "each worker's mean gradient is an update of its own";
    options.make_updater = [this](Net& net) { return make_updater_of(net); };
    return options;
  }

  std::unique_ptr<Updater> make_updater_of(Net& net) {
    const SolverParameter param = with_phase(param_, phase());
    std::unique_ptr<Updater> updater = job_.make_updater(param, scheme_, end_of_phase(), net);
    if (scales_loss(param, net.context())) {
      // Factors would leave with the scale.
      if (std::ranges::any_of(net.layers(), hands_over_factors))
        throw ConfigError(Code::kConfig, name_,
                          ": precision: FLOAT16 cannot send factors, since gradients are scaled: "
                          "choose another way in exchange, or BFLOAT16");
      updater = make_loss_scaling(param, net, std::move(updater));
    }
    if (net.context().share().replicas > 1)
      updater = make_replicas(param, name_, net, options_.others, std::move(updater));
    return options_.wrap ? options_.wrap(net, std::move(updater), param) : std::move(updater);
  }

  const Phase& phase() const { return phases_[phase_]; }
  std::int64_t end_of_phase() const {
    return std::min<std::int64_t>(phase().end, param_.max_iter());
  }
  Team* team() const { return job_.team(); }
  bool chief() const { return !team() || team()->chief(); }
  // Returns the chief's number, on all workers.
  std::int64_t share(std::int64_t chiefs) const {
    return team() ? std::stoll(or_throw(team()->share(std::to_string(chiefs)))) : chiefs;
  }

  const JobSpec& spec_;
  SolverParameter param_;
  const std::string name_;  // of the solver's prototxt
  const RunOptions& options_;
  JobMembership& job_;
  std::vector<Phase> phases_;
  std::size_t phase_ = 0;
  table::SchemeSpec scheme_;  // the present one
  std::string snapshot_;      // from which the first segment goes on
  bool knows_snapshot_ = false;
  // From which the next one does, and how; and until that has made a step, since it may begin
  // again.
  std::shared_ptr<const SolverMemory> memory_;
  Solver::Continuation how_;
  int steps_ = 0;           // of the segment, up to 2
  std::int64_t first_ = 0;  // iteration of the run
  bool starts_ = true;      // the first segment is yet to begin, or begins
  bool begun_ = false;      // the first segment
  bool opened_ = false;     // RunOptions::opened was called
  bool late_ = false;       // this process joins a job that trains
};

}  // namespace

Result<Ending> run(const JobSpec& spec, const RunOptions& options, table::Table* table) {
  const std::unique_ptr<JobMembership> job =
      table ? make_table_membership(options, spec, *table)
            : std::make_unique<LoneMembership>(options, spec.name);
  const Result<Ending> ending = Run(spec, options, *job).run();
  if (ending.ok() && ending.value() != Ending::kLeft) end_mpi();
  return ending;
}

}  // namespace shoal::parallel
