#include "shoal/solver/solver.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/solver/boundary.h"
#include "shoal/solver/debug_info.h"
#include "shoal/solver/last_iteration.h"
#include "shoal/solver/non_finite.h"
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
  Parts(const SolverParameter& param, SolverOptions options) : core(param, std::move(options)) {}
  SolverCore core;
  Reporter reporter{core};
  Snapshots snapshots{core};
  Boundary boundary{core, snapshots};
  Tester tester{core, reporter, snapshots, boundary};
  NonFiniteGuard non_finite{core, snapshots};
  LastIteration last{core, snapshots};
  RunAhead ahead{core};
};

Solver::Solver(const SolverParameter& param, SolverOptions options)
    : parts_(std::make_unique<Parts>(param, std::move(options))), core_(parts_->core) {
  connect_hooks();
  core_.net->clear_gradients();
  core_.catch_up = [this] { return catch_up(0); };
  if (core_.team.chief())
    for (const std::string& item : param.weights())
      for (const std::string& file : split(item, ',')) copy_weights(file);
  core_.share_test_weights();
  parts_->reporter.report_start();
}

Solver::~Solver() = default;

// The net has one hook of each kind: the updater's calls and debug_info's lines share them.
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
void Solver::restore(const std::string& state_file) { parts_->snapshots.restore(state_file); }
Result<std::shared_ptr<const SolverMemory>> Solver::save_state() {
  return parts_->snapshots.save_state();
}
void Solver::restore_state(const SolverMemory* memory, const Continuation& how) {
  parts_->snapshots.restore_state(memory, how);
}
Result<std::vector<TestScore>> Solver::test(int index) { return parts_->tester.test(index); }
Status Solver::snapshot() { return parts_->snapshots.write(); }
Net& Solver::net() { return *core_.net; }
std::span<const std::unique_ptr<Net>> Solver::test_nets() const { return core_.test_nets; }
std::int64_t Solver::iteration() const { return core_.iteration; }
std::int64_t Solver::items_per_update() const { return core_.items_per_update(); }
double Solver::own_items() const { return core_.own_items(); }
float Solver::smoothed_loss() const { return core_.smoothed_loss(); }
float Solver::rate() const { return core_.rate; }

Result<Ending> Solver::solve() { return solve_until(core_.param.max_iter()); }

Result<Ending> Solver::solve_until(std::int64_t end) {
  if (!core_.goes_on) LOG(INFO) << "Solving " << core_.net->name();
  if (!core_.goes_on) LOG(INFO) << "Learning Rate Policy: " << core_.param.lr_policy();
  parts_->reporter.start();
  end = std::min<std::int64_t>(end, core_.param.max_iter());
  const bool shares = core_.policy.shares_iterations && end > 0;
  if (!core_.goes_on && core_.iteration > 0 && core_.iteration >= core_.param.max_iter() && !shares)
    LOG(WARNING) << "Iteration " << core_.iteration << " is not below max_iter, "
                 << core_.param.max_iter() << ": there is nothing left to train";
  Result<Ending> ending = step((shares ? kNoEnd : end) - core_.iteration);
  if (!ending.ok()) return rescue(ending.error());
  if (core_.apart()) {
    if (const Status status = parts_->boundary.end_apart(); !status.ok()) return status.error();
    ending = core_.ending.value_or(Ending::kDone);
    // so many each has done, on average
    if (shares && ending.value() == Ending::kDone) core_.iteration = end;
  }
  const bool continues =
      ending.value() == Ending::kDone && core_.iteration < core_.param.max_iter();
  if (continues || ending.value() == Ending::kRegroups) {
    if (Status status = parts_->reporter.end_observing(); !status.ok()) return status.error();
    return continues ? Ending::kContinues : Ending::kRegroups;
  }
  if (ending.value() == Ending::kLeft) return ending;
  const Result<bool> last = parts_->boundary.wants_last_snapshot();
  if (!last.ok()) return last.error();
  if (last.value())
    if (Status status = snapshot(); !status.ok()) return status.error();
  if (ending.value() != Ending::kDone) {
    // other workers may wait for this one's part in a sum
    if (Status status = core_.updater->settle(Settle::kOwn); !status.ok()) return status.error();
    LOG(INFO) << "Optimization stopped early.";
    if (Status status = parts_->reporter.end_observing(); !status.ok()) return status.error();
    return ending;
  }
  if (Status status = finish(); !status.ok()) return status.error();
  if (Status status = parts_->reporter.end_observing(); !status.ok()) return status.error();
  if (core_.ending) return *core_.ending;
  LOG(INFO) << "Optimization Done.";
  return ending;
}

// The last whole iteration's state is good whatever the data did then, and is worth saving. A run
// from it reads the same records again: they can be mended, and none is left out.
Error Solver::rescue(Error error) {
  if (error.code != Code::kData || core_.iteration == core_.started_iteration ||
      !parts_->last.can_be_saved())
    return error;
  const char* const rest = parts_->last.go_back() ? "; a run from it reads the same records again"
                                                  : "; a run from it goes on behind what was read";
  const Status saved = snapshot();
  const std::string outcome =
      saved.ok() ? str("a snapshot has the state of iteration ", core_.iteration, rest)
                 : saved.error().message;
  return Error{error.code, str(error.message, "; ", outcome)};
}

// The last lines: the loss that the next iteration would see, and a test if one falls here.
Status Solver::finish() {
  // the params that the net is left with hold the last update
  if (Status status = core_.updater->settle(Settle::kOwn); !status.ok()) return status;
  if (core_.falls_on(core_.param.display())) {
    pass_ = core_.recipe.iter_size;  // the updater has no part in this pass
    const Result<float> loss = core_.net->forward();
    if (!loss.ok()) return loss.error();
    core_.note_loss(loss.value());
    LOG(INFO) << "Iteration " << core_.iteration << ", loss = " << core_.smoothed_loss();
    if (!std::isfinite(loss.value()))
      LOG(WARNING) << "The loss with the last update's params is not finite; the first that is "
                      "not: "
                   << core_.net->find_non_finite();
  }
  return core_.falls_on(core_.param.test_interval()) ? parts_->tester.test_all() : Status();
}

Result<Ending> Solver::step(std::int64_t n) {
  core_.ending.reset();
  parts_->snapshots.test_ends();
  const Status done = n > 0 ? iterate_until(core_.iteration + n) : Status();
  // an error of an iteration before comes first
  if (const Status status = catch_up(0); !status.ok()) return status.error();
  if (!done.ok()) return done.error();
  return core_.ending.value_or(Ending::kDone);
}

Status Solver::iterate_until(std::int64_t end) {
  if (Status status = parts_->boundary.enter(); !status.ok()) return status;
  while (!core_.ending && core_.iteration < end) {
    const Result<bool> may_begin = parts_->boundary.wait_to_begin();
    if (!may_begin.ok()) return may_begin.error();
    if (!may_begin.value()) break;
    if (core_.falls_on(core_.param.test_interval()) &&
        (core_.iteration > 0 || core_.param.test_initialization()))
      if (Status status = parts_->tester.test_all(); !status.ok()) return status;
    if (core_.ending) break;
    const bool ahead = parts_->ahead.possible() && !core_.falls_on(core_.param.display());
    if (Status status = iterate(ahead); !status.ok()) return status;
    ++core_.iteration;  // from here on the number of updates made
    parts_->last.keep();
    if (Status status = catch_up(RunAhead::kMost); !status.ok()) return status;
    if (Status status = parts_->boundary.pass(); !status.ok()) return status;
  }
  return {};
}

// ahead: the iteration is queued, and nothing waits for its outcome.
Status Solver::iterate(bool ahead) {
  if (ahead)
    parts_->ahead.begin();
  else if (const Status status = catch_up(0); !status.ok())
    return status;
  const std::int64_t at = core_.rate_iteration;
  const std::int64_t steps = optim::steps_taken(core_.recipe.rate, at, core_.steps);
  if (core_.recipe.rate.policy == optim::Policy::kMultistep && steps != core_.steps)
    LOG(INFO) << "MultiStep Status: Iteration " << core_.iteration << ", step = " << steps;
  core_.steps = steps;
  core_.rate =
      optim::scaled(optim::rate_at(core_.recipe.rate, at, core_.steps), core_.rate_scaling, at);
  parts_->reporter.mark(Meter::Mark::kBegin);
  if (Status status = core_.updater->begin(core_.iteration, core_.rate); !status.ok())
    return status;
  for (bool first = true;; first = false) {
    if (Status status = ahead ? queue_step() : local_step(first); !status.ok()) return status;
    const Result<bool> another = core_.updater->another_step();
    if (!another.ok()) return another.error();
    if (another.value()) continue;
    parts_->reporter.mark(Meter::Mark::kEnd);
    return {};
  }
}

Status Solver::queue_step() {
  pass_ = 0;
  if (Status status = core_.team.status(); !status.ok()) return status;
  if (Status status = core_.net->run_forward(); !status.ok()) return status;
  if (Status status = core_.net->backward(); !status.ok()) return status;
  return parts_->ahead.queue_update();
}

// Takes the outcome of queued iterations, until at most `left` are under way. Those from the first
// that was refused on are made again, each with all that on_nan and its error need.
Status Solver::catch_up(std::uint64_t left) {
  RunAhead& ahead = parts_->ahead;
  while (ahead.under_way() > left) {
    const std::optional<float> loss = ahead.take_outcome();
    if (loss) {
      last_loss_ = *loss;
      core_.note_loss(*loss);
      parts_->last.keep_losses();
      continue;
    }
    const std::int64_t end = core_.iteration;
    if (Status status = ahead.go_back(); !status.ok()) return status;
    parts_->last.keep();
    while (core_.iteration < end) {
      core_.rate_iteration = core_.iteration;
      if (Status status = iterate(/*ahead=*/false); !status.ok()) return status;
      ++core_.iteration;
      parts_->last.keep();
    }
    core_.rate_iteration = end;  // that of the iteration which waits for this
  }
  return {};
}

// An iteration shows the values of its first step, whose params are those that it began with.
Status Solver::local_step(bool first) {
  parts_->non_finite.save_forward_state();
  parts_->reporter.mark(Meter::Mark::kStep);
  const float before = last_loss_;
  const Result<bool> finished = run_passes();
  if (!finished.ok()) return finished.error();
  if (!finished.value()) {
    if (first) parts_->reporter.display(false);
    return {};
  }
  if (!first) last_loss_ = before;
  if (first) {
    core_.note_loss(last_loss_);
    parts_->reporter.display(true);
  }
  parts_->reporter.mark(Meter::Mark::kPassed);
  if (Status status = apply(); !status.ok()) return status;
  parts_->reporter.mark(Meter::Mark::kUpdated);
  return {};
}

// False: the loss was not finite, and on_nan says to leave this iteration out. On a device the loss
// is read when the gradients are looked at, so that the device waits for neither.
Result<bool> Solver::run_passes() {
  const bool late = core_.updater->is_quiet() && !core_.net->context().device().is_host();
  float sum = 0;
  for (pass_ = 0; pass_ < core_.recipe.iter_size; ++pass_) {
    if (Status status = core_.team.status(); !status.ok()) return status.error();
    if (Status status = core_.net->run_forward(); !status.ok()) return status.error();
    if (late)
      if (Status status = core_.net->backward(); !status.ok()) return status.error();
    if (late && pass_ == core_.recipe.iter_size - 1)
      if (Status status = core_.updater->look(); !status.ok()) return status.error();
    const float loss = core_.net->loss();
    sum += loss;
    if (!std::isfinite(loss)) {
      Result<bool> verdict = parts_->non_finite.judge(str("the loss, ", loss, ","));
      if (!verdict.ok() || !verdict.value()) return verdict;
    }
    if (!late)
      if (Status status = core_.net->backward(); !status.ok()) return status.error();
  }
  last_loss_ = core_.updater->mean_loss(sum / static_cast<float>(core_.recipe.iter_size));
  if (core_.param.debug_info() || core_.net->definition().debug_info()) log_params(*core_.net);
  return true;
}

Status Solver::apply() {
  const bool warn_only = core_.param.on_nan() == SolverParameter::WARN;
  Result<StepOutcome> outcome = core_.updater->end_step(StepEnd::kUpdate);
  if (!outcome.ok()) return outcome.error();
  if (outcome.value() == StepOutcome::kApplied) return {};
  if (const Result<bool> verdict = parts_->non_finite.judge("a gradient"); !verdict.ok())
    return verdict.error();
  if (!warn_only) return {};
  outcome = core_.updater->end_step(StepEnd::kUpdateAnyway);
  return outcome.ok() ? Status() : Status(outcome.error());
}

}  // namespace shoal
