// One update a clock, made of what all workers pushed of it: bsp, and means of deltas.
#pragma once

#include "shoal/table/scheme/parameters.h"

namespace shoal::table {

// A task of deltas whose mean is taken. Reads momentum_policy, aggregation, global_rate,
// global_momentum and global_nesterov.
Task read_averaging(Parameters& parameters);

// The mean of these contributions of `row.held`, summed in their order. Those of weight 0 are
// dropped.
//
// kSamples: the mean, weighed as the workers say. kUniform: the mean. kSteps: the sum of what they
// say over their number, since a worker says its part of what all did, the steps of the mean worker
// over its own (FedNova's tau_eff / M).
Merge mean_of(const RowView& row, std::span<const std::size_t> which,
              Weighing weighing = Weighing::kSamples);

// In step: the oldest clock held, once all that count have pushed it; in the order of workers.
// Contributions of weight 0 are dropped; if there are no others, that is all: no update, as on a
// single machine that leaves an iteration out, and no version. Of gradients the mean is a step of
// the rule, of deltas row += global_rate * the mean.
class InStep : public Scheme {
 public:
  // `factor`: what the sum of gradients is divided by; 0: by their number, as it is the mean.
  explicit InStep(const SchemeSpec& spec = {}, const Task& task = {}, PacerMaker pacer = {},
                  float factor = 0)
      : Scheme(spec, {.task = task, .staleness = 0, .lockstep = true, .pacer = std::move(pacer)}),
        factor_(factor) {}
  std::optional<Merge> next_merge(const RowView& row) const override;

 private:
  const float factor_;
};

}  // namespace shoal::table
