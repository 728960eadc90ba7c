// The sum of a vector over all workers.
#pragma once

#include <span>

#include "shoal/parallel/rows/row_waits.h"

namespace shoal::parallel {

// One worker's part of a sum: expect, start, and progress and wait until it is done. All workers
// get the same bits. All calls on one thread, destination apart.
class VectorSum {
 public:
  virtual ~VectorSum() = default;
  // Returns the vector. Good between expect() of one clock and of the next.
  virtual std::span<float> numbers() = 0;
  // Returns the place for the numbers of a row that another worker writes for this one.
  virtual table::Destination destination(table::RowId row) = 0;
  // Prepares for the sum of this clock, which every worker starts once.
  virtual Status expect(table::Clock clock, RowWaits& waits) = 0;
  // Starts the sum with numbers() as this worker's summand. From here until is_done() it belongs to
  // the sum.
  virtual void start() = 0;
  // Carries the sum on without waiting.
  virtual void progress() = 0;
  // Returns whether numbers() is the sum.
  virtual bool is_done() const = 0;
  // Returns when progress() may do more, or with an error if it will not.
  virtual Status wait(RowWaits& waits) = 0;
};

}  // namespace shoal::parallel
