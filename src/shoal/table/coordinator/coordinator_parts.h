// The parts of the coordinator that each settle one matter: rounds, agreements, starts of tasks,
// outputs, norms, stragglers and the next generation, all about the same members.
#pragma once

#include <utility>
#include <vector>

#include "shoal/table/coordinator.h"
#include "shoal/table/coordinator/agreement.h"
#include "shoal/table/coordinator/members.h"
#include "shoal/table/coordinator/norms.h"
#include "shoal/table/coordinator/outputs.h"
#include "shoal/table/coordinator/pacing.h"
#include "shoal/table/coordinator/regrouping.h"
#include "shoal/table/coordinator/rounds.h"
#include "shoal/table/coordinator/stragglers.h"
#include "shoal/table/scheme.h"

namespace shoal::table {

struct CoordinatorParts {
  // `next_generation` makes the answer to a round of regroup.
  CoordinatorParts(std::uint32_t processes, Rounds::Regroup next_generation)
      : members(processes), rounds(members, agreement, std::move(next_generation)) {}
  CoordinatorParts(const CoordinatorParts&) = delete;

  Members members;
  Outputs outputs{members};
  Regrouping regrouping{members};
  Agreement agreement{members, regrouping.scheme()};
  Rounds rounds;
  Norms norms{members};
  Stragglers stragglers{members};
  Pacing pacing{members};
};

inline constexpr std::uint32_t kNoOne = ~std::uint32_t{0};  // no rank

}  // namespace shoal::table
