#include "shoal/solver/solver.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/base/try.h"
#include "shoal/solver/boundary.h"
#include "shoal/solver/debug_info.h"
#include "shoal/solver/last_iteration.h"
#include "shoal/solver/non_finite.h"
#include "shoal/solver/recovery.h"
#include "shoal/solver/reporter.h"
#include "shoal/solver/run_ahead.h"
#include "shoal/solver/snapshots.h"
#include "shoal/solver/solver_core.h"
#include "shoal/solver/tester.h"

namespace shoal {
namespace {

constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

}  // namespace

struct Solver::Parts {
  Parts(const SolverParameter& param, SolverOptions options, std::function<Status()> catch_up)
      : core(param, std::move(options), progress, std::move(catch_up)) {}
  Progress progress;
  const SolverCore core;
  Reporter reporter{core};
  Snapshots snapshots{core, reporter};
  Boundary boundary{core, snapshots};
  Tester tester{core, reporter, snapshots, boundary};
  NonFiniteGuard non_finite{core, snapshots};
  LastIteration last{core, snapshots};
  RunAhead ahead{core};
  Recovery recovery{core};
};

Solver::Solver(const SolverParameter& param, SolverOptions options)
    : parts_(std::make_unique<Parts>(param, std::move(options), [this] { return catch_up(0); })),
      core_(parts_->core),
      at_(parts_->progress) {
  connect_hooks();
  core_.net->clear_gradients();
  if (core_.team.chief())
    for (const std::string& item : param.weights())
      for (const std::string& file : split(item, ',')) copy_weights(file);
  core_.share_test_weights();
  parts_->reporter.report_start();
}

Solver::~Solver() = default;

// Connects the net's hooks. It has one of each kind: the updater's calls and debug_info's lines
// share them.
void Solver::connect_hooks() {
  const bool debug = core_.param.debug_info() || core_.net->definition().debug_info();
  const std::int64_t together = debug ? 0 : core_.updater->bytes_together();
  core_.net->before_forward(
      [this](int layer) { return pass_ == 0 ? core_.updater->before_forward(layer) : Status(); },
      together);
  if (debug)
    core_.net->after_forward(
        [this](int layer) { return log_forward(*core_.net, layer), Status(); });
  const auto after_backward = [this, debug](std::span<const int> layers) {
    for (const int layer : layers)
      if (debug) log_backward(*core_.net, layer);
    return pass_ == core_.recipe.iter_size - 1 ? core_.updater->after_backward(layers) : Status();
  };
  core_.net->after_backward(after_backward, together);
}

void Solver::copy_weights(const std::string& model_file) { core_.copy_weights(model_file); }
void Solver::restore(const std::string& state_file) {
  at_ = parts_->snapshots.restore(state_file);
  parts_->reporter.restored();
}
Result<std::shared_ptr<const SolverMemory>> Solver::save_state() {
  return parts_->snapshots.save_state();
}
void Solver::restore_state(const SolverMemory* memory, const Continuation& how) {
  at_ = parts_->snapshots.restore_state(memory, how);
  parts_->reporter.restored();
}
Result<std::vector<TestScore>> Solver::test(int index) { return parts_->tester.test(index); }
Status Solver::snapshot() { return parts_->snapshots.write(); }
Net& Solver::net() { return *core_.net; }
std::span<const std::unique_ptr<Net>> Solver::test_nets() const { return core_.test_nets; }
std::int64_t Solver::iteration() const { return at_.iteration; }
std::int64_t Solver::items_per_update() const { return core_.items_per_update(); }
double Solver::own_items() const { return core_.own_items(); }
float Solver::smoothed_loss() const { return at_.smoothed_loss(); }
float Solver::rate() const { return at_.rate; }

Result<Ending> Solver::solve() { return solve_until(core_.param.max_iter()); }

Result<Ending> Solver::solve_until(std::int64_t end) {
  Result<Ending> ending = train_until(end);
  return !ending.ok() && is_interruption(ending.error()) ? recover() : ending;
}

Result<Ending> Solver::recover() {
  parts_->snapshots.note_recovery();
  for (;;) {
    const Result<std::int64_t> iteration = parts_->recovery.run();
    Status status = iteration.ok() ? Status() : Status(iteration.error());
    if (status.ok()) {
      at_.iteration = iteration.value();
      status = parts_->boundary.end_interrupted();
    }
    Result<Ending> ending =
        status.ok() ? conclude(*parts_->boundary.ending()) : Result<Ending>(status.error());
    if (ending.ok() || !is_interruption(ending.error())) return ending;
  }
}

Result<Ending> Solver::train_until(std::int64_t end) {
  if (!at_.goes_on) LOG(INFO) << "Solving " << core_.net->name();
  if (!at_.goes_on) LOG(INFO) << "Learning Rate Policy: " << core_.param.lr_policy();
  at_.started_iteration = at_.iteration;
  parts_->reporter.start();
  end = std::min<std::int64_t>(end, core_.param.max_iter());
  const bool shares = core_.policy.shares_iterations && end > 0;
  if (!at_.goes_on && at_.iteration > 0 && at_.iteration >= core_.param.max_iter() && !shares)
    LOG(WARNING) << "Iteration " << at_.iteration << " is not below max_iter, "
                 << core_.param.max_iter() << ": there is nothing left to train";
  Result<Ending> ending = step((shares ? kNoEnd : end) - at_.iteration);
  if (!ending.ok()) return rescue(ending.error());
  if (core_.apart()) {
    TRY(parts_->boundary.end_apart());
    ending = parts_->boundary.ending().value_or(Ending::kDone);
    // On average each has done so many.
    if (shares && ending.value() == Ending::kDone) at_.iteration = end;
  }
  return conclude(ending.value());
}

// Ends this solver's part of the run.
Result<Ending> Solver::conclude(Ending ending) {
  const bool continues = ending == Ending::kDone && at_.iteration < core_.param.max_iter();
  if (continues || ending == Ending::kRegroups) {
    TRY(parts_->reporter.end_observing());
    return continues ? Ending::kContinues : Ending::kRegroups;
  }
  if (ending == Ending::kLeft) return ending;
  const Result<bool> last = parts_->boundary.wants_last_snapshot();
  TRY(last);
  if (last.value()) TRY(snapshot());
  if (ending != Ending::kDone) {
    // Other workers may wait for this one's part in a sum.
    TRY(core_.updater->settle(Settle::kOwn));
    LOG(INFO) << "Optimization stopped early.";
    TRY(end_together());
    TRY(parts_->reporter.end_observing());
    return ending;
  }
  TRY(finish());
  TRY(end_together());
  TRY(parts_->reporter.end_observing());
  if (parts_->boundary.ending()) return *parts_->boundary.ending();
  LOG(INFO) << "Optimization Done.";
  return ending;
}

// Waits, where a loss interrupts all, until all have settled: a member that has ended cannot help
// the others any more.
Status Solver::end_together() {
  if (!core_.policy.is_interrupted) return {};
  const Result<std::string> shared = core_.team.share("");
  return shared.ok() ? Status() : Status(shared.error());
}

// Saves the last whole iteration's state, which does not depend on the broken data. A run from it
// reads the same records again: they can be corrected, and none is left out.
Error Solver::rescue(Error error) {
  if (error.code != Code::kData || at_.iteration == at_.started_iteration ||
      !parts_->last.can_be_saved())
    return error;
  const std::deque<float>* const losses = parts_->last.go_back();
  if (losses) at_.recent_losses = *losses;
  const char* const rest =
      losses ? "; a run from it reads the same records again"
             : "; a run from it goes on with the records after those that were read";
  const Status saved = snapshot();
  const std::string outcome =
      saved.ok() ? str("a snapshot has the state of iteration ", at_.iteration, rest)
                 : saved.error().message;
  return Error{error.code, str(error.message, "; ", outcome)};
}

// Logs the last lines: the loss that the next iteration would see, and a test if one falls here.
Status Solver::finish() {
  // The params that the net is left with hold the last update.
  TRY(core_.updater->settle(Settle::kOwn));
  if (at_.falls_on(core_.param.display())) {
    pass_ = core_.recipe.iter_size;  // the updater has no part in this pass
    const Result<float> loss = core_.net->forward();
    TRY(loss);
    note_loss(loss.value());
    LOG(INFO) << "Iteration " << at_.iteration << ", loss = " << at_.smoothed_loss();
    if (!std::isfinite(loss.value()))
      LOG(WARNING) << "The loss with the last update's params is not finite; the first that is "
                      "not: "
                   << core_.net->find_non_finite();
  }
  return at_.falls_on(core_.param.test_interval()) ? parts_->tester.test_all() : Status();
}

Result<Ending> Solver::step(std::int64_t n) {
  parts_->boundary.forget_ending();
  parts_->snapshots.test_ends();
  const Status done = n > 0 ? iterate_until(at_.iteration + n) : Status();
  // An error of an iteration before comes first.
  TRY(catch_up(0));
  TRY(done);
  return parts_->boundary.ending().value_or(Ending::kDone);
}

Status Solver::iterate_until(std::int64_t end) {
  Boundary& boundary = parts_->boundary;
  TRY(boundary.enter());
  while (!boundary.ending() && at_.iteration < end) {
    const Result<std::optional<std::int64_t>> may_begin = boundary.wait_to_begin();
    TRY(may_begin);
    if (!may_begin.value()) break;
    at_.rate_iteration = *may_begin.value();
    if (at_.falls_on(core_.param.test_interval()) &&
        (at_.iteration > 0 || core_.param.test_initialization()))
      TRY(parts_->tester.test_all());
    if (boundary.ending()) break;
    const bool ahead =
        parts_->ahead.possible() && !follows_loss() && !at_.falls_on(core_.param.display());
    TRY(iterate(ahead));
    ++at_.iteration;  // from here on the number of updates made
    parts_->last.keep();
    TRY(catch_up(RunAhead::kMost));
    TRY(boundary.pass());
  }
  return {};
}

// Makes an iteration. ahead: it is queued, and nothing waits for its outcome.
Status Solver::iterate(bool ahead) {
  if (ahead)
    parts_->ahead.begin();
  else
    TRY(catch_up(0));
  const std::int64_t at = at_.rate_iteration;
  const std::int64_t steps = rate_steps(at);
  if (core_.recipe.rate.policy == optim::Policy::kMultistep && steps != at_.steps)
    LOG(INFO) << "MultiStep Status: Iteration " << at_.iteration << ", step = " << steps;
  at_.steps = steps;
  at_.rate =
      optim::scaled(optim::rate_at(core_.recipe.rate, at, at_.steps), core_.rate_scaling, at);
  parts_->reporter.mark(Meter::Mark::kBegin);
  TRY(core_.updater->begin(at_.iteration, at_.rate));
  for (bool first = true;; first = false) {
    TRY(ahead ? queue_step() : local_step(first));
    const Result<bool> another = core_.updater->another_step();
    TRY(another);
    if (another.value()) continue;
    parts_->reporter.mark(Meter::Mark::kEnd);
    return {};
  }
}

bool Solver::follows_loss() const { return core_.recipe.rate.policy == optim::Policy::kPlateau; }

std::int64_t Solver::rate_steps(std::int64_t at) {
  const optim::RateOptions& rate = core_.recipe.rate;
  if (rate.policy != optim::Policy::kPlateau) return optim::steps_taken(rate, at, at_.steps);
  if (at_.recent_losses.empty()) return at_.steps;
  const std::int64_t steps = at_.plateau.steps(rate, at, at_.smoothed_loss(), at_.steps);
  if (steps != at_.steps)
    LOG(INFO) << "Plateau Status: Iteration " << at_.iteration << ", step = " << steps
              << ", minimum_loss = " << at_.plateau.least;
  return steps;
}

void Solver::note_loss(float loss) {
  at_.recent_losses.push_back(loss);
  while (at_.recent_losses.size() > static_cast<std::size_t>(core_.param.average_loss()))
    at_.recent_losses.pop_front();
}

Status Solver::queue_step() {
  pass_ = 0;
  TRY(core_.team.status());
  TRY(core_.net->run_forward());
  TRY(core_.net->backward());
  return parts_->ahead.queue_update();
}

// Takes the outcome of queued iterations, until at most `left` are under way. Those from the first
// refused one on are made again, each with all that on_nan and its error need.
Status Solver::catch_up(std::uint64_t left) {
  RunAhead& ahead = parts_->ahead;
  while (ahead.under_way() > left) {
    const std::optional<float> loss = ahead.take_outcome();
    if (loss) {
      last_loss_ = *loss;
      note_loss(*loss);
      parts_->last.keep_losses();
      continue;
    }
    const std::int64_t end = at_.iteration;
    const Result<RunAhead::Place> before = ahead.go_back();
    TRY(before);
    at_.iteration = before.value().iteration;
    at_.steps = before.value().steps;
    parts_->last.keep();
    while (at_.iteration < end) {
      at_.rate_iteration = at_.iteration;
      TRY(iterate(/*ahead=*/false));
      ++at_.iteration;
      parts_->last.keep();
    }
    at_.rate_iteration = end;  // that of the iteration which waits for this
  }
  return {};
}

// Makes a local step. An iteration shows the values of its first step, whose params are those that
// it began with.
Status Solver::local_step(bool first) {
  parts_->non_finite.save_forward_state();
  parts_->reporter.mark(Meter::Mark::kStep);
  const float before = last_loss_;
  const Result<bool> finished = run_passes();
  TRY(finished);
  if (!finished.value()) {
    if (first) parts_->reporter.display(false);
    return {};
  }
  if (!first) last_loss_ = before;
  if (first) {
    note_loss(last_loss_);
    parts_->reporter.display(true);
  }
  parts_->reporter.mark(Meter::Mark::kPassed);
  TRY(apply());
  parts_->reporter.mark(Meter::Mark::kUpdated);
  return {};
}

// Returns false if the loss was not finite, and on_nan says to leave this iteration out. On a
// device the loss is read when the gradients are examined, so that the device waits for neither.
Result<bool> Solver::run_passes() {
  const bool late = core_.updater->is_quiet() && !core_.net->context().device().is_host();
  float sum = 0;
  for (pass_ = 0; pass_ < core_.recipe.iter_size; ++pass_) {
    TRY(core_.team.status());
    TRY(core_.net->run_forward());
    if (late) TRY(core_.net->backward());
    if (late && pass_ == core_.recipe.iter_size - 1) TRY(core_.updater->look());
    const float loss = core_.net->loss();
    sum += loss;
    if (!std::isfinite(loss)) {
      Result<bool> verdict = parts_->non_finite.judge(str("the loss, ", loss, ","));
      if (!verdict.ok() || !verdict.value()) return verdict;
    }
    if (!late) TRY(core_.net->backward());
  }
  last_loss_ = core_.updater->mean_loss(sum / static_cast<float>(core_.recipe.iter_size));
  if (core_.param.debug_info() || core_.net->definition().debug_info()) log_params(*core_.net);
  return true;
}

Status Solver::apply() {
  const bool warn_only = core_.param.on_nan() == SolverParameter::WARN;
  Result<StepOutcome> outcome = core_.updater->end_step(StepEnd::kUpdate);
  TRY(outcome);
  if (outcome.value() == StepOutcome::kApplied) return {};
  if (const Result<bool> verdict = parts_->non_finite.judge("a gradient"); !verdict.ok())
    return verdict.error();
  if (!warn_only) return {};
  outcome = core_.updater->end_step(StepEnd::kUpdateAnyway);
  return outcome.ok() ? Status() : Status(outcome.error());
}

}  // namespace shoal
