#include "shoal/parallel/rows/param_staging.h"

#include <algorithm>

namespace shoal::parallel {

void ParamStaging::fix() {
  const std::size_t rows = map_.rows().size();
  buffers_.resize(rows);
  memory_.resize(rows);
  expected_.assign(rows, false);
  for (table::RowId row = 0; row < rows; ++row) {
    const std::span<float> numbers = map_.weights(row);
    if (!in_place_[row]) buffers_[row].assign(numbers.begin(), numbers.end());
    memory_[row] = in_place_[row] ? numbers : std::span<float>(buffers_[row]);
  }
}

void ParamStaging::expect(table::RowId row) {
  if (in_place_[row]) map_.finish_copies(row);
  expected_[row] = true;
}

void ParamStaging::upload(std::span<const table::RowId> rows) {
  for (const table::RowId row : rows) {
    if (!expected_[row]) continue;
    expected_[row] = false;
    // Tells the tensor that its numbers have changed, in place, too.
    const std::span<float> numbers = map_.weights(row);
    if (!in_place_[row]) std::ranges::copy(memory_[row], numbers.begin());
  }
}

}  // namespace shoal::parallel
