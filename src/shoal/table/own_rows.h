// Numbers some of a plan's rows from 0 in the order of their ids: the rows that one client or
// server uses. Its memory grows with the gaps between them and not with the plan.
#pragma once

#include <algorithm>
#include <vector>

#include "shoal/table/types.h"

namespace shoal::table {

class OwnRows {
 public:
  static constexpr std::size_t kNone = ~std::size_t{0};

  OwnRows(const Rows& rows, const auto& is_own) {
    for (RowId id = 0; id < rows.size(); ++id) {
      if (!is_own(rows[id])) continue;
      if (runs_.empty() || id != runs_.back().first + runs_.back().length)
        runs_.push_back({id, size_});
      ++runs_.back().length;
      ++size_;
    }
  }
  std::size_t size() const { return size_; }
  // Returns the number of a row; kNone of one that is not here.
  std::size_t find(RowId id) const {
    const std::size_t run = before(id, &Run::first);
    if (run == kNone) return kNone;
    const auto& [first, number, length] = runs_[run];
    return id - first < length ? number + (id - first) : kNone;
  }
  // Returns the id of the row with this number, below size().
  RowId operator[](std::size_t number) const {
    const Run& run = runs_[before(number, &Run::number)];
    return run.first + static_cast<RowId>(number - run.number);
  }

 private:
  // A run of rows that follow each other in the plan: the first one's id and number, and their
  // count.
  struct Run {
    RowId first = 0;
    std::size_t number = 0;
    RowId length = 0;
  };
  // Returns the last run that begins at or before `value`; kNone if there is none.
  std::size_t before(std::size_t value, auto Run::*of) const {
    const auto after = std::ranges::upper_bound(runs_, value, {}, of);
    return static_cast<std::size_t>(after - runs_.begin()) - 1;
  }

  std::vector<Run> runs_;
  std::size_t size_ = 0;
};

}  // namespace shoal::table
