// Says what a simulated cluster's history must keep to.
#pragma once

#include <utility>
#include <vector>

#include "shoal/table/scheme.h"
#include "support/simulated_cluster.h"

namespace shoal::table {

// `base`: the numbers of the rows at the start.
inline HistoryRules rules_of(const Segment& one, std::vector<std::vector<float>> base) {
  return {
      .workers = one.plan.workers,
      .start = one.plan.start,
      .stops = one.stops,
      .staleness = one.staleness,
      .skipped = one.skipped,
      .lockstep = one.staleness == 0,
      .exact = one.exact,
      .clocks = one.plan.clocks,
      .own_answers = one.plan.scheme.make().value()->contribution() == ContributionKind::kWeights,
      .base = std::move(base)};
}

}  // namespace shoal::table
