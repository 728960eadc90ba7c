// Makes one update a clock from the pushes of all workers: bsp, and means of deltas.
#pragma once

#include "shoal/table/scheme/parameters.h"

namespace shoal::table {

// Returns a task of deltas whose mean is taken. Reads aggregation, global_rate, global_momentum and
// global_nesterov.
Task read_mean(Parameters& parameters);
// Reads momentum_policy too.
Task read_averaging(Parameters& parameters);

// Returns the mean of these contributions of `row.held`, summed in their order. Those of weight 0
// are dropped.
//
// kSamples: the mean by the workers' weights. kUniform: the mean. kSteps: the sum of weighted
// deltas over their number, since a worker's weight is its part of all steps, the steps of the mean
// worker over its own (FedNova's tau_eff / M).
Merge mean_of(const RowView& row, std::span<const std::size_t> which,
              Weighing weighing = Weighing::kSamples);

// Merges in step: the oldest clock held, once all that count have pushed it; in the order of
// workers. Contributions of weight 0 are dropped; if there are no others, there is no update, as on
// a single machine that leaves an iteration out, and no version. Of gradients the mean is a step of
// the rule, of deltas row += global_rate * the mean.
class InStep : public Scheme {
 public:
  // `factor`: the divisor of the sum of gradients; 0: their number, as it is the mean.
  explicit InStep(const SchemeSpec& spec = {}, const Task& task = {}, PacerMaker pacer = {},
                  float factor = 0)
      : Scheme(spec, {.task = task, .staleness = 0, .lockstep = true, .pacer = std::move(pacer)}),
        factor_(factor) {}
  std::optional<Merge> next_merge(const RowView& row) const override;

 private:
  const float factor_;
};

}  // namespace shoal::table
