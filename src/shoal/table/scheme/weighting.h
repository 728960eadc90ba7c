// How much less an update counts that was computed from old numbers. Sources: MXNet-G's 1/Y (CCGRID
// 2019); Zhang et al., "Staleness-aware Async-SGD" (IJCAI 2016) by version; the other functions as
// in Xie et al., "Asynchronous federated optimization" (2019).
#pragma once

#include "shoal/table/scheme/parameters.h"

namespace shoal::table {

struct Weighting {
  enum class Function { kNone, kInverse, kPolynomial, kExponential, kCutoff };
  // Y: by version, how many versions the row is past the one that was read, at least 1; by counter,
  // 1 more than the others' updates since the worker's, or its group's, own last. They differ by
  // one once something was missed.
  enum class Definition { kCounter, kVersion };
  // the gradient, before the clip and without the decay; or the rate, and so the decay too
  enum class On { kGradient, kRate };

  Function function = Function::kNone;
  Definition definition = Definition::kCounter;
  On on = On::kGradient;
  double a = 1;
  double floor = 1, cap = 0;  // Y is held between them; cap 0: none

  // Returns 1/Y, 1/(1 + a (Y - 1)), exp(-a (Y - 1)); of a cut-off 1 to Y = a and 0, which is a
  // drop, beyond. `version`: of the row now, `used`: when it was read, `last`: just after the last
  // update of the worker that made this one.
  double weight(Version version, Version used, Version last) const;
  // Puts a weight above 0 into a merge.
  void put(double weight, Merge& merge) const;
};

// weighting=none|inverse|polynomial|exponential|cutoff, weighting_definition=counter|version,
// weighting_on=gradient|rate, weighting_a=..., weighting_floor=..., weighting_cap=...
Weighting read_weighting(Parameters& parameters, Weighting::Function otherwise,
                         ContributionKind payload);

}  // namespace shoal::table
