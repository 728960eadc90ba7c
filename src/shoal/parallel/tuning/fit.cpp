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
    return "averages momentum at exchanges, and its workers exchange one by one: there is no mean "
           "of all; keep or reset it";
  if (task.weighing == table::Weighing::kSteps && weights)
    return "weighs by local steps, which is of deltas: weights are not summed";
  if (task.pull_first && !weights) return "exchanges before the first step, which is of weights";
  if (task.pull_first && task.judged)
    return "exchanges before the first step, and would drop a task whose weights are there already";
  if (task.steps == 0 && !task.judged && !task.paced)
    return "does not say how many local steps a task has, nor asks";
  return "";
}

void check_on_nan(const SolverParameter& param, const std::string& name) {
  if (param.on_nan() != SolverParameter::SNAPSHOT && param.on_nan() != SolverParameter::WARN)
    return;
  throw ConfigError(
      Code::kConfig, name, ": on_nan is ", SolverParameter::OnNan_Name(param.on_nan()),
      ", which works without a table alone: ",
      param.on_nan() == SolverParameter::WARN ? "a table takes no number that is not finite"
                                              : "when one worker notices, others have gone on",
      "; STOP and SKIP work with one");
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
                      words, "' they do not come together; leave it out, or take scheme 'bsp'");
  if (const std::string reason = why_not(scheme); !reason.empty())
    throw ConfigError(Code::kConfig, name, ": scheme '", words, "' ", reason);
  check_on_nan(param, name);
}

}  // namespace shoal::parallel
