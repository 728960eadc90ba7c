// Decides by what the workers of a job divide the data that they share.
#pragma once

#include <optional>
#include <string>

#include "shoal/parallel/tuning/speed_tuner.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {

// Returns the measure by which workers divide the data that they share. Throws ConfigError where
// fields contradict each other.
inline SolverParameter::ShareBy shares_by(const SolverParameter& solver, const std::string& name,
                                          bool weights_given) {
  const auto batch = solver.has_batch_by() ? solver.batch_by() : SolverParameter::EQUAL;
  const auto by = solver.has_share_by()             ? solver.share_by()
                  : batch != SolverParameter::EQUAL ? batch
                  : weights_given                   ? SolverParameter::WEIGHT
                                                    : SolverParameter::EQUAL;
  if (batch != SolverParameter::EQUAL && batch != by)
    throw ConfigError(Code::kConfig, name, ": batch_by is ", SolverParameter::ShareBy_Name(batch),
                      " and share_by ", SolverParameter::ShareBy_Name(by),
                      "; batches are divided as the data are: leave one out, or give both alike");
  if (solver.share_interval() < 0)
    throw ConfigError(Code::kConfig, name, ": share_interval is ", solver.share_interval(),
                      "; it must be 0 or more");
  return by;
}

// Returns how shares by speed are found; nothing if they are not by speed.
inline std::optional<GroupSearch> share_search(const SolverParameter& solver,
                                               SolverParameter::ShareBy by) {
  GroupSearch search;
  if (solver.has_share_interval()) search.interval = solver.share_interval();
  return by == SolverParameter::SPEED ? std::optional(search) : std::nullopt;
}

}  // namespace shoal::parallel
