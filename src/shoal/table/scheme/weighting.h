// Weights an update by the age of the numbers that it was computed from. Sources: MXNet-G's 1/Y
// (CCGRID 2019); Zhang et al., "Staleness-aware Async-SGD" (IJCAI 2016) by version; the other
// functions as in Xie et al., "Asynchronous federated optimization" (2019).
#pragma once

#include "shoal/table/scheme/parameters.h"

namespace shoal::table {

struct Weighting {
  WeightFunction function = WeightFunction::kNone;
  StalenessBy definition = StalenessBy::kCounter;
  Weighed on = Weighed::kGradient;
  double a = 1;
  double floor = 1, cap = 0;  // Y is held between them; cap 0: none

  // Returns the function of Y; 0 is a drop. `version`: of the row now, `used`: when it was read,
  // `last`: just after the last update of the worker that made this one.
  double weight(Version version, Version used, Version last) const;
  // Puts a weight above 0 into a merge.
  void put(double weight, Merge& merge) const;
};

// Reads weighting, `otherwise` where it is not given, and with a function the rest of it.
Weighting read_weighting(Parameters& parameters, ContributionKind payload,
                         WeightFunction otherwise = WeightFunction::kNone);

}  // namespace shoal::table
