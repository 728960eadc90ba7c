// Refuses solvers and schemes that do not fit each other.
#include "shoal/base/error.h"
#include "shoal/parallel/job/plan.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {
namespace {

using table::ContributionKind;
using table::MomentumPolicy;

// Returns why a worker's tasks make no sense; "" if they do.
std::string why_not(const table::Scheme& scheme) {
  const table::Task task = scheme.task;
  const bool weights = task.contribution == ContributionKind::kWeights;
  if (task.contribution == ContributionKind::kGradient) return "";
  if (task.momentum == MomentumPolicy::kAverage && (weights || !scheme.lockstep))
    return "has momentum_policy AVERAGE, but its workers exchange one by one, so there is no mean "
           "of all; take KEEP or RESET";
  if (task.weighing == table::Weighing::kSteps && weights)
    return "has aggregation STEPS, which is for deltas, but its workers send weights";
  if (task.pull_first && !weights)
    return "exchanges before the first step, but only workers that send weights can";
  if (task.pull_first && task.judged)
    return "exchanges before the first step, so it cannot drop a task afterwards";
  if (task.steps == 0 && !task.judged && !task.paced)
    return "gives no number of local steps for a task, and does not ask the coordinator for one";
  return "";
}

void check_on_nan(const SolverParameter& param, const std::string& name) {
  if (param.on_nan() != SolverParameter::SNAPSHOT && param.on_nan() != SolverParameter::WARN)
    return;
  throw ConfigError(
      Code::kConfig, name, ": on_nan is ", SolverParameter::OnNan_Name(param.on_nan()),
      ", which works only without a table: ",
      param.on_nan() == SolverParameter::WARN ? "a table refuses numbers that are not finite"
                                              : "when one worker notices, the others have gone on",
      "; take STOP or SKIP");
}

}  // namespace

void check_fit(const SolverParameter& param, const std::string& name, const table::Scheme& scheme,
               int workers) {
  const std::string words = scheme.name();
  if (const std::string unfit = scheme.unfit(workers); !unfit.empty())
    throw ConfigError(Code::kConfig, name, ": scheme '", words, "': ", unfit);
  if (scheme.contribution() == ContributionKind::kGradient && !scheme.lockstep &&
      read_recipe(param, name).clip >= 0)
    throw ConfigError(Code::kConfig, name,
                      ": clip_gradients limits the norm of the gradients of all workers together, "
                      "and under scheme '",
                      words, "' they come one by one; leave it out, or take scheme 'bsp'");
  if (const std::string reason = why_not(scheme); !reason.empty())
    throw ConfigError(Code::kConfig, name, ": scheme '", words, "' ", reason);
  check_on_nan(param, name);
}

}  // namespace shoal::parallel
