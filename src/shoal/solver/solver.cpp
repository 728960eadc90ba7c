#include "shoal/solver/solver.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/proto/io.h"
#include "shoal/proto/run.pb.h"
#include "shoal/solver/debug_info.h"
#include "shoal/solver/net_params.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/snapshot.h"

namespace shoal {
namespace {

constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

bool wants_snapshots(const SolverParameter& param) {
  return param.snapshot() > 0 || param.snapshot_after_train();
}

void check_prefix(const SolverParameter& param, const std::string& name) {
  if (!wants_snapshots(param) && param.snapshot_best().empty()) return;
  if (param.snapshot_prefix().empty())
    throw ConfigError(Code::kConfig, name,
                      ": snapshots are asked for, but there is no snapshot_prefix");
  const Status writable = check_writable(latest_path(param.snapshot_prefix()), Code::kSnapshot);
  if (!writable.ok())
    throw ConfigError(Code::kSnapshot, name,
                      ": no snapshot could be written under snapshot_prefix '",
                      param.snapshot_prefix(), "': ", writable.error().message);
}

std::uint64_t pick_seed(const SolverParameter& param) {
  if (param.random_seed() >= 0) return static_cast<std::uint64_t>(param.random_seed());
  const std::uint64_t seed = random_seed() >> 1;  // fits random_seed, which has a sign
  LOG(INFO) << "random_seed is not set; this run's is " << seed;
  return seed;
}

}  // namespace

Solver::Solver(const SolverParameter& param, SolverOptions options)
    : param_(std::make_unique<SolverParameter>(param)),
      options_(std::move(options)),
      recipe_(std::make_unique<Recipe>(read_recipe(param, options_.name))) {
  if (team().chief()) check_prefix(param, options_.name);
  warn_of_idleness(param, options_.name);
  if (param.has_solver_mode() && param.solver_mode() == SolverParameter::GPU)
    LOG(WARNING)
        << "solver_mode is GPU, and this build computes on the CPU alone: training there, on "
        << options_.threads << " threads";
  seed_ = pick_seed(param);
  build_net();
  updater_ = options_.make_updater ? options_.make_updater(*net_)
                                   : make_local_updater(param, options_.name, *net_);
  policy_ = updater_->policy();
  build_test_nets();
  check_best();
  connect_hooks();
  net_->clear_gradients();
  if (team().chief())
    for (const std::string& item : param.weights())
      for (const std::string& file : split(item, ',')) copy_weights(file);
  else
    options_.observer = nullptr;
  share_test_weights();
  observed_ = or_throw(team().share(options_.observer ? "yes" : "")) == "yes";
  report_start();
  started_at_ = shown_at_ = Clock::now();
}

Solver::~Solver() = default;

Context& Solver::add_context(const Share& share) {
  contexts_.push_back(std::make_unique<Context>(
      Context::Options{.threads = options_.threads, .seed = seed_, .share = share}));
  return *contexts_.back();
}

void Solver::build_net() {
  if (param_->has_net() || param_->has_train_net())
    LOG(INFO) << "Creating training net from net file: "
              << (param_->has_net() ? param_->net() : param_->train_net());
  net_ =
      std::make_unique<Net>(train_net_of(*param_, options_.name, options_.share),
                            add_context(options_.share), NetOptions{.fuse = !param_->debug_info()});
  if (param_->batch_semantics() == SolverParameter::GLOBAL && options_.share.count() > 1) {
    whole_batch_ = written_batch(*param_, options_.name);
    weight_ = contribution_weight(*param_, options_.name, options_.share);
  }
}

void Solver::build_test_nets() {
  Share one = options_.share;  // a process tests with one net, however many it trains with
  one.replica = 0;
  one.replicas = 1;
  one.weights.clear();  // a test is divided among equals
  // or the chief's alone: what all share is its own then, and what is cut up stays so
  if (apart() && team().chief()) {
    if (one.suffix.empty()) one.suffix = std::to_string(one.client);
    one.in_parts = one.in_parts || one.clients > 1;
    one.client = 0;
    one.clients = 1;
  }
  for (const NetParameter& test_net : test_nets_of(*param_, options_.name)) {
    LOG(INFO) << "Creating test net (#" << test_nets_.size() << ")";
    test_nets_.push_back(std::make_unique<Net>(test_net, add_context(one)));
    test_nets_.back()->share_weights(*net_);
  }
}

// The net has one hook of each kind: the updater's calls and debug_info's lines share them.
void Solver::connect_hooks() {
  net_->before_forward(
      [this](int layer) { return pass_ == 0 ? updater_->before_forward(layer) : Status(); });
  const bool debug = param_->debug_info() || net_->definition().debug_info();
  if (debug) net_->after_forward([this](int layer) { return log_forward(*net_, layer), Status(); });
  net_->after_backward([this, debug](int layer) {
    if (debug) log_backward(*net_, layer);
    return pass_ == recipe_->iter_size - 1 ? updater_->after_backward(layer) : Status();
  });
}

void Solver::copy_weights(const std::string& model_file) {
  LOG(INFO) << "Finetuning from " << model_file;
  const NetParameter model = read_weights(model_file);
  net_->copy_weights(model, model_file);
  for (const auto& test_net : test_nets_)  // layers of the test phase alone
    if (has_own_params(*test_net, *net_)) test_net->copy_weights(model, model_file);
}

Result<Ending> Solver::solve() { return solve_until(param_->max_iter()); }

Result<Ending> Solver::solve_until(std::int64_t end) {
  if (!goes_on_) LOG(INFO) << "Solving " << net_->name();
  if (!goes_on_) LOG(INFO) << "Learning Rate Policy: " << param_->lr_policy();
  started_at_ = shown_at_ = Clock::now();
  if (options_.meter) options_.meter->start(iteration_);
  started_iteration_ = shown_iteration_ = iteration_;
  away_seconds_ = 0;
  end = std::min<std::int64_t>(end, param_->max_iter());
  const bool shares = policy_.shares_iterations && end > 0;
  if (iteration_ > 0 && iteration_ >= param_->max_iter() && !shares)
    LOG(WARNING) << "Iteration " << iteration_ << " is not below max_iter, " << param_->max_iter()
                 << ": there is nothing left to train";
  Result<Ending> ending = step((shares ? kNoEnd : end) - iteration_);
  if (!ending.ok()) return rescue(ending.error());
  if (apart()) {
    if (const Status status = end_apart(); !status.ok()) return status.error();
    ending = ending_.value_or(Ending::kDone);
    // so many each has done, on average
    if (shares && ending.value() == Ending::kDone) iteration_ = end;
  }
  const bool continues = ending.value() == Ending::kDone && iteration_ < param_->max_iter();
  if (continues || ending.value() == Ending::kRegroups) {
    if (Status status = end_observing(); !status.ok()) return status.error();
    return continues ? Ending::kContinues : Ending::kRegroups;
  }
  if (ending.value() == Ending::kLeft) return ending;
  const Result<bool> last = wants_last_snapshot();
  if (!last.ok()) return last.error();
  if (last.value())
    if (Status status = snapshot(); !status.ok()) return status.error();
  if (ending.value() != Ending::kDone) {
    LOG(INFO) << "Optimization stopped early.";
    if (Status status = end_observing(); !status.ok()) return status.error();
    return ending;
  }
  if (Status status = finish(); !status.ok()) return status.error();
  if (Status status = end_observing(); !status.ok()) return status.error();
  if (ending_) return *ending_;
  LOG(INFO) << "Optimization Done.";
  return ending;
}

// The last whole iteration's params are good whatever the data did then, and nobody wants to lose
// them. A team cannot be asked: others are in another iteration by then, and wait for this one.
Error Solver::rescue(Error error) {
  if (in_team() || error.code != Code::kData || iteration_ == started_iteration_ ||
      !wants_snapshots(*param_))
    return error;
  const Status saved = snapshot();
  const std::string outcome =
      saved.ok() ? str("the state of iteration ", iteration_, " is saved") : saved.error().message;
  return Error{error.code, str(error.message, "; ", outcome)};
}

// The last lines: the loss that the next iteration would see, and a test if one falls here.
Status Solver::finish() {
  if (falls_on(param_->display())) {
    if (Status status = updater_->settle(Settle::kOwn); !status.ok()) return status;
    pass_ = recipe_->iter_size;  // the updater has no part in this pass
    const Result<float> loss = net_->forward();
    if (!loss.ok()) return loss.error();
    note_loss(loss.value());
    LOG(INFO) << "Iteration " << iteration_ << ", loss = " << smoothed_loss();
  }
  return falls_on(param_->test_interval()) ? test_all() : Status();
}

Result<Ending> Solver::step(std::int64_t n) {
  const std::int64_t end = iteration_ + n;
  ending_.reset();
  if (options_.team && n > 0 && agreed_at_ != iteration_) {
    // what members agree on depends on what binds them from here on
    if (Status status = updater_->settle(Settle::kOwn); !status.ok()) return status.error();
    if (const Status status = at_boundary(); !status.ok()) return status.error();
  }
  while (!ending_ && iteration_ < end) {
    const Result<bool> may_begin = wait_to_begin();
    if (!may_begin.ok()) return may_begin.error();
    if (!may_begin.value()) break;
    if (falls_on(param_->test_interval()) && (iteration_ > 0 || param_->test_initialization()))
      if (Status status = test_all(); !status.ok()) return status.error();
    if (ending_) break;
    if (Status status = iterate(); !status.ok()) return status.error();
    ++iteration_;  // from here on the number of updates made
    if (const Status status = at_boundary(); !status.ok()) return status.error();
  }
  return ending_.value_or(Ending::kDone);
}

Status Solver::act(Action action) {
  if (action == Action::kSnapshot || action == Action::kRequeue)
    if (Status status = snapshot(); !status.ok()) return status;
  if (action == Action::kStop) ending_ = Ending::kStopped;
  if (action == Action::kRequeue) ending_ = Ending::kRequeue;
  if (action == Action::kRegroup) ending_ = Ending::kRegroups;
  return {};
}

Status Solver::iterate() {
  const std::int64_t at = rate_iteration_;
  const std::int64_t steps = optim::steps_taken(recipe_->rate, at, steps_);
  if (recipe_->rate.policy == optim::Policy::kMultistep && steps != steps_)
    LOG(INFO) << "MultiStep Status: Iteration " << iteration_ << ", step = " << steps;
  steps_ = steps;
  rate_ = optim::rate_at(recipe_->rate, at, steps_);
  mark(Meter::Mark::kBegin);
  if (Status status = updater_->begin(iteration_, rate_); !status.ok()) return status;
  for (bool first = true;; first = false) {
    if (Status status = local_step(first); !status.ok()) return status;
    const Result<bool> another = updater_->another_step();
    if (!another.ok()) return another.error();
    if (another.value()) continue;
    mark(Meter::Mark::kEnd);
    return {};
  }
}

// What is shown of an iteration is of its first step, whose params are those that it began with.
Status Solver::local_step(bool first) {
  save_running_sums();
  mark(Meter::Mark::kStep);
  const float before = last_loss_;
  const Result<bool> finished = run_passes();
  if (!finished.ok()) return finished.error();
  if (!finished.value()) {
    if (first && falls_on(param_->display())) observe_display(false);
    return {};
  }
  if (!first) last_loss_ = before;
  if (first) note_loss(last_loss_);
  if (first && falls_on(param_->display())) {
    display();
    observe_display(true);
  }
  mark(Meter::Mark::kPassed);
  if (Status status = apply(); !status.ok()) return status;
  mark(Meter::Mark::kUpdated);
  return {};
}

// False: the loss was not finite, and on_nan says to leave this iteration out.
Result<bool> Solver::run_passes() {
  float sum = 0;
  for (pass_ = 0; pass_ < recipe_->iter_size; ++pass_) {
    if (Status status = team().status(); !status.ok()) return status.error();
    const Result<float> loss = net_->forward();
    if (!loss.ok()) return loss.error();
    sum += loss.value();
    if (!std::isfinite(loss.value())) {
      Result<bool> verdict = judge_non_finite(str("the loss, ", loss.value(), ","));
      if (!verdict.ok() || !verdict.value()) return verdict;
    }
    if (Status status = net_->backward(); !status.ok()) return status.error();
  }
  last_loss_ = updater_->mean_loss(sum / static_cast<float>(recipe_->iter_size));
  if (param_->debug_info() || net_->definition().debug_info()) log_params(*net_);
  return true;
}

Status Solver::apply() {
  const bool warn_only = param_->on_nan() == SolverParameter::WARN;
  Result<StepOutcome> outcome = updater_->end_step(StepEnd::kUpdate);
  if (!outcome.ok()) return outcome.error();
  if (outcome.value() == StepOutcome::kApplied) return {};
  if (const Result<bool> verdict = judge_non_finite("a gradient"); !verdict.ok())
    return verdict.error();
  if (!warn_only) return {};
  outcome = updater_->end_step(StepEnd::kUpdateAnyway);
  return outcome.ok() ? Status() : Status(outcome.error());
}

}  // namespace shoal
