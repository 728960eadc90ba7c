// Merges each contribution as an update of its own: the shared part of all schemes whose workers do
// not wait to be merged together.
#pragma once

#include "shoal/table/scheme/weighting.h"

namespace shoal::table {

// The traits of its task: payload, steps, momentum and the order of exchange.
struct Single : SchemeTraits {
  // The divisor of a gradient's rate, or of a delta; 0: the number of workers.
  double factor = 1;
  // The alpha of elastic averaging; 0: 0.9 divided by the number of workers.
  double moving_rate = 0;
  double compensation = 0;
  Weighting weighting{};
  Version most_lag = kUnbounded;  // a contribution is dropped after more updates than these
};

// Merges each contribution when it arrives; a worker reads rows with all its own.
class OneByOne : public Scheme {
 public:
  OneByOne(const SchemeSpec& spec, const Single& single) : Scheme(spec, single), single_(single) {}
  std::string caution(int workers) const override;
  // Drops the contribution if it is empty, it is late or its weight is 0. The weight that a worker
  // gives beside others' is not used, except that 0 is none.
  std::optional<Merge> next_merge(const RowView& row) const override;

 private:
  const Single single_;
};

enum class Payloads { kGradient, kGradientOrDelta, kWeights, kAny };

// Reads payload, where there is a choice; of a gradient compensation (`compensation` where it is
// not given) and factor; of a delta local_steps, momentum_policy and factor; of weights
// local_steps, momentum_policy, moving_rate and exchange_order; of all the weighting and
// share_iterations.
//
// A gradient's factor is by default the number of workers of the generation: n mini-batches then
// move the row as far as one of n times the size does. A worker at its end counts as well, or
// the last would go on at n times the rate, each step by its own small batch. A delta's is 1, as in
// SpeeDO: a worker's change counts whole.
Single read_single(Parameters& parameters, Payloads payloads, double compensation = 0);

}  // namespace shoal::table
