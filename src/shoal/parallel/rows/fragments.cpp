#include "shoal/parallel/rows/fragments.h"

#include <algorithm>

#include "shoal/proto/config_error.h"

namespace shoal::parallel {

using table::RowId;

// Puts a row into the fragment in which its middle lies, when all numbers are in one line.
Fragments::Fragments(const RowMap& map, int count, const std::string& name)
    : rows_(static_cast<std::size_t>(count)), of_(map.rows().size(), -1) {
  std::vector<RowId> rows = map.learning();
  std::ranges::stable_sort(rows, {}, [&](RowId row) { return map.rows()[row].priority; });
  double total = 0, before = 0;
  for (const RowId row : rows) total += map.rows()[row].length;
  for (const RowId row : rows) {
    const double length = map.rows()[row].length, middle = before + length / 2;
    const int fragment = std::min(count - 1, static_cast<int>(middle / total * count));
    rows_[static_cast<std::size_t>(fragment)].push_back(row);
    of_[row] = fragment;
    before += length;
  }
  if (!rows.empty() && std::ranges::any_of(rows_, &std::vector<RowId>::empty))
    throw ConfigError(Code::kConfig, name, ": fragments is ", count, ", but the net's ",
                      static_cast<std::int64_t>(total), " numbers that learn are in ", rows.size(),
                      " rows, which cannot fill as many fragments; take fewer");
}

}  // namespace shoal::parallel
