// Waits for rows of a table and counts the time that this takes.
#pragma once

#include <chrono>
#include <span>

#include "shoal/base/timer.h"
#include "shoal/table/table.h"

namespace shoal::parallel {

class RowWaits {
 public:
  explicit RowWaits(table::Table& table) : table_(table) {}
  Status wait(std::span<const table::RowId> rows) {
    const table::Instant start = table_.now();
    Status status = table_.wait(rows);
    add(table_.now() - start);
    return status;
  }
  void add(table::Instant time) { total_ += time; }  // of another wait
  table::Instant total() const { return total_; }
  double seconds() const { return to_seconds(total_); }

 private:
  table::Table& table_;
  table::Instant total_{};
};

}  // namespace shoal::parallel
