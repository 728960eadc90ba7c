// How long an exchange takes a worker, for a pacer that says how much there is to do until then
// (Task::is_planned): measured when a generation begins, by each worker in its turn, so that they
// do not measure each other.
#pragma once

#include <span>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/table/table.h"

namespace shoal::parallel {

// Rows that are read for it: a MiB, or all if there is less, of each server as much. `share`: of
// all numbers.
struct RowSample {
  std::vector<table::RowId> rows;
  double share = 1;
};
RowSample sample_of(std::span<const table::Row> rows, int servers);

// Seconds of getting all rows of `plan` at the worker's first clock, whose rows exist. While they
// come, others go the other way. All workers call this.
Result<double> measure_exchange(table::Table& table, const table::Plan& plan);

}  // namespace shoal::parallel
