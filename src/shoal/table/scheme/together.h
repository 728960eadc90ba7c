// One update a clock, made of what all workers pushed of it: bsp, and means of deltas.
#pragma once

#include <optional>

#include "parameters.h"
#include "shoal/table/scheme.h"

namespace shoal::table {

// The oldest clock held, once all that count have pushed it; in the order of workers. Contributions of weight 0 are dropped; if there are
// no others, that is all: no update, as on a single machine that leaves an iteration out, and no version.
//
// kSamples: the mean, weighed as the workers say. kUniform: the mean. kSteps: the sum of what they say over their number, since a worker says
// its part of what all did, the steps of the mean worker over its own (FedNova's tau_eff / M).
std::optional<Merge> merge_clock(const RowView& row, Weighing weighing);

// A task of deltas whose mean is taken: aggregation=uniform|samples|steps (samples), momentum_policy.
Task read_averaging(Parameters& parameters);

// A worker reads what holds all updates of the clocks before its own `clock` - staleness, and all its own.
bool is_readable(const RowView& row, int worker, Clock clock, Clock staleness);

}  // namespace shoal::table
