#include "shoal/solver/run_ahead.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/ops/eltwise.h"
#include "shoal/ops/update.h"
#include "shoal/ops/vector.h"
#include "shoal/solver/net_state.h"

namespace shoal {
namespace {

// Returns whether a layer writes its bottoms to something outside the net, which going back does
// not undo.
bool writes_files(const Net& net) {
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i)
    if (net.tops(i).empty() && !net.layers()[static_cast<std::size_t>(i)]->replays().forward)
      return true;
  return false;
}

bool is_possible(const SolverCore& core) {
  Net& net = *core.net;
  const bool debug = core.param.debug_info() || net.definition().debug_info();
  // A state that goes from pass to pass would have to be kept from before.
  const bool carries =
      std::ranges::any_of(net.layers(), [](const auto& one) { return !one->carried().empty(); });
  return !net.context().device().is_host() && core.updater->queues_updates() &&
         core.param.on_nan() == SolverParameter::STOP && core.recipe.iter_size == 1 && !debug &&
         !core.options.meter && !carries && !writes_files(net);
}

}  // namespace

RunAhead::RunAhead(const SolverCore& core) : SolverPart(core), possible_(is_possible(core)) {
  if (!possible_) return;
  for (Iteration& one : iterations_) one.done = net_.context().device().make_event(/*timed=*/false);
}

// Waits for copies that are under way, also of an iteration that was not queued to its end: they
// write into the memory of its outcome.
RunAhead::~RunAhead() {
  try {
    if (possible_) net_.context().stream()->synchronize();
  } catch (const DeviceError&) {  // the next that uses the device says so
  }
}

void RunAhead::begin() {
  Iteration& next = iteration(queued_);
  next.place = {progress_.iteration, progress_.steps};
  next.state.Clear();
  put_state(net_, next.state);
}

// Judges the losses: they must be finite, and the weighted sum of single numbers, as loss layers
// make them.
void RunAhead::judge_losses(const std::vector<const Tensor*>& tops) {
  Context& ctx = net_.context();
  std::vector<float> weights;
  float all = 0;
  bool are_single = true;
  for (const auto& [weight, count] : iteration(queued_).losses) {
    weights.push_back(weight);
    all += std::fabs(weight);
    are_single = are_single && count == 1;
  }
  if (all <= 1 || !are_single) return ops::judge(ctx, tops, /*clip=*/-1, verdict_);
  ops::weighted_sum(ctx, tops, weights, loss_);
  const Tensor* const sum[] = {&loss_};
  ops::judge(ctx, sum, /*clip=*/-1, verdict_);
}

Status RunAhead::queue_update() {
  Context& ctx = net_.context();
  Iteration& own = iteration(queued_);
  std::vector<const Tensor*> parts;
  own.losses.clear();
  net_.each_loss([&](const Tensor& top, float weight) {
    parts.push_back(&top);
    own.losses.emplace_back(weight, top.count());
  });
  judge_losses(parts);
  parts.insert(parts.begin(), &verdict_);
  TRY(updater_.queue_update(verdict_));
  std::size_t bytes = 0;
  for (const Tensor* part : parts) bytes += part->bytes();
  if (!own.outcome || own.outcome->bytes() < bytes)
    own.outcome = ctx.device().allocate_on_host(bytes);
  std::byte* to = own.outcome->data();
  for (const Tensor* part : parts) {
    ctx.stream()->download(to, part->read(ctx), part->bytes());
    to += part->bytes();
  }
  own.done->record(*ctx.stream());
  ++queued_;
  return {};
}

std::optional<float> RunAhead::take_outcome() {
  const Iteration& first = iteration(known_);
  first.done->wait();
  const float* number = reinterpret_cast<const float*>(first.outcome->data());
  if (*number != 0) return {};
  number += verdict_.count();
  ++known_;
  float loss = 0;
  for (const auto& [weight, count] : first.losses)
    for (std::int64_t i = 0; i < count; ++i) loss += weight * *number++;
  return updater_.mean_loss(loss);
}

Result<RunAhead::Place> RunAhead::go_back() {
  net_.context().stream()->synchronize();
  // The gradients of the refused update are forgotten.
  if (Result<StepOutcome> skipped = updater_.end_step(StepEnd::kSkip); !skipped.ok())
    return skipped.error();
  const Iteration& first = iteration(known_);
  take_state(net_, first.state, "the state of an iteration that is made again");
  known_ = queued_;
  ops::fill(net_.context(), 0, verdict_);
  return first.place;
}

}  // namespace shoal
