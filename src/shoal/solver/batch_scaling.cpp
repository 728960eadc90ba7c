#include "shoal/solver/batch_scaling.h"

#include <algorithm>
#include <cmath>

#include "shoal/base/log.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {

optim::RateScaling scaling_of(const SolverParameter& param, const std::string& name,
                              std::int64_t items, std::int64_t written) {
  const BatchScaling& given = param.batch_scaling();
  if (given.warmup_iterations() < 0)
    throw ConfigError(Code::kConfig, name, ": batch_scaling: warmup_iterations is ",
                      given.warmup_iterations(), "; it must be 0 or more");
  if (given.has_base_batch() && given.base_batch() == 0)
    throw ConfigError(Code::kConfig, name,
                      ": batch_scaling: base_batch is 0; it must be 1 or more");
  optim::RateScaling scaling{.factor = 1, .warmup = given.warmup_iterations()};
  if (!param.has_batch_scaling() || given.rule() == BatchScaling::NONE) return scaling;
  const std::int64_t base = given.has_base_batch()
                                ? given.base_batch()
                                : std::max<std::int64_t>(1, written) * param.iter_size();
  scaling.factor = static_cast<double>(items) / static_cast<double>(base);
  if (given.rule() == BatchScaling::SQRT) scaling.factor = std::sqrt(scaling.factor);
  LOG(INFO) << "batch_scaling: an update has " << items << " items, and base_lr is for " << base
            << ": the rate is multiplied by " << scaling.factor
            << (scaling.warmup > 0 ? str(" after ", scaling.warmup, " iterations") : "");
  return scaling;
}

}  // namespace shoal
