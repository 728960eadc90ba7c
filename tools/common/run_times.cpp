#include "common/run_times.h"

#include "shoal/base/log.h"
#include "shoal/table/scheme.h"

namespace shoal {

Action TimesOfRun::action(double limit, Action asked) {
  last_ = Clock::now();
  if (!first_) first_ = last_;
  if (asked != Action::kNone || limit <= 0 || ended_) return asked;
  if (last_ - *first_ < std::chrono::duration<double>(limit)) return asked;
  ended_ = true;
  LOG(INFO) << "--seconds=" << limit << ": the time is over";
  return Action::kStop;
}

void TimesOfRun::suggest_sharing(int worker, const table::SchemeSpec& spec) const {
  const auto scheme = spec.make();
  if (!first_ || !scheme.ok() || scheme.value()->bounded() || scheme.value()->task.shared) return;
  const auto waited = Clock::now() - last_, trained = last_ - *first_;
  if (waited < std::chrono::seconds(1) || waited < trained / 5) return;
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  LOG(WARNING) << "worker " << worker << " made its iterations in " << seconds(trained)
               << " s, and then waited " << seconds(waited) << " s for slower workers: max_iter is "
               << "each worker's. With --share_iterations=true fast ones make more of the job's";
}

}  // namespace shoal
