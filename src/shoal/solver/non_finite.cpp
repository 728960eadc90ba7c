#include "shoal/solver/non_finite.h"

#include <bit>

#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/ops/vector.h"

namespace shoal {

void NonFiniteGuard::save_forward_state() {
  if (core_.recipe.may_skip) before_.save(net_);
}

bool NonFiniteGuard::params_are_finite() {
  std::vector<const Tensor*> params;
  for (const NetParam& param : net_.params()) params.push_back(&param.blob->data);
  return ops::all_finite(net_.context(), params);
}

Result<bool> NonFiniteGuard::judge(const std::string& what) {
  const std::string first = net_.find_non_finite();
  const std::string report = str("Iteration ", progress_.iteration, ", lr = ", progress_.rate, ": ",
                                 what, " is not finite; ",
                                 first.empty() ? "every blob is finite, so the sum is too large"
                                               : str("the first that is not: ", first));
  if (param_.on_nan() == SolverParameter::WARN) {
    if (std::has_single_bit(++bad_iterations_))
      LOG(WARNING) << report << ". on_nan is WARN: going on";
    return true;
  }
  if (param_.on_nan() == SolverParameter::STOP)
    return Error{Code::kNonFinite,
                 report +
                     ". Stopped before this iteration's update. Lower base_lr, set clip_gradients "
                     "or check the data; on_nan: SKIP leaves such updates out"};
  before_.restore(net_);
  if (!params_are_finite())
    return Error{Code::kNonFinite,
                 report + ". Nothing can be saved: the params were damaged before"};
  if (const Result<StepOutcome> skipped = updater_.end_step(StepEnd::kSkip); !skipped.ok())
    return skipped.error();
  if (param_.on_nan() == SolverParameter::SNAPSHOT) {
    TRY(snapshots_.write());
    return Error{Code::kNonFinite,
                 report + ". Stopped with a snapshot of the state before this iteration's update"};
  }
  if (std::has_single_bit(++bad_iterations_))
    LOG(WARNING) << report << ". on_nan is SKIP: this update is left out (" << bad_iterations_
                 << " so far)";
  return false;
}

}  // namespace shoal
