// Host memory, fixed for each row, through which a table reads and writes the params of a net.
#pragma once

#include <span>
#include <vector>

#include "shoal/parallel/row_map.h"

namespace shoal::parallel {

// Threads of the table use weights() alone, and so never touch a tensor. On a CPU the memory of a
// row is the param's own, and nothing is copied; elsewhere it is a buffer.
class ParamStaging {
 public:
  // in_place: the tensors are on the host in plain order, so that their memory can be used.
  ParamStaging(const RowMap& map, bool in_place) : map_(map), in_place_(in_place) {}

  // Before the table hears of the rows: from now on their memory stays where it is, and holds the
  // params as they are.
  void fix();
  // Any thread.
  std::span<float> weights(table::RowId row) const { return memory_[row]; }
  bool in_place() const { return in_place_; }

  // ---- the solver's thread ----
  // The table was asked for the row, whose numbers will be in weights(row).
  void expect(table::RowId row) { expected_[row] = true; }
  // These rows have arrived: makes those that were expected the params' numbers.
  void upload(std::span<const table::RowId> rows);

 private:
  const RowMap& map_;
  const bool in_place_;
  std::vector<std::vector<float>> buffers_;  // by row; none in place
  std::vector<std::span<float>> memory_;     // by row
  std::vector<bool> expected_;               // by row
};

}  // namespace shoal::parallel
