// Host memory, fixed for each row, through which a table reads and writes the params of a net.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "shoal/parallel/row_map.h"

namespace shoal::parallel {

// Holds the memory. Threads of the table use weights() alone, and so never touch a tensor. In place
// the memory of a row is the param's own on the host, and nothing is copied; otherwise it is a
// buffer.
class ParamStaging {
 public:
  // in_place, by row: only arrivals change the numbers of this tensor, on a CPU or elsewhere.
  ParamStaging(const RowMap& map, std::vector<bool> in_place)
      : map_(map), in_place_(std::move(in_place)) {}

  // Fixes the memory of all rows, before the table gets the rows. From now on it stays in place,
  // and holds the params as they are.
  void fix();
  // Returns the memory of a row. On any thread.
  std::span<float> weights(table::RowId row) const { return memory_[row]; }

  // ---- the solver's thread ----
  // The table is about to be asked for the row, whose numbers will be in weights(row). Returns when
  // no device reads them.
  void expect(table::RowId row);
  // These rows have arrived: makes those that were expected the params' numbers.
  void upload(std::span<const table::RowId> rows);

 private:
  const RowMap& map_;
  const std::vector<bool> in_place_;         // by row
  std::vector<std::vector<float>> buffers_;  // by row; empty in place
  std::vector<std::span<float>> memory_;     // by row
  std::vector<bool> expected_;               // by row
};

}  // namespace shoal::parallel
