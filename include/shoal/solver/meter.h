// Receives the timing marks of each solver iteration.
#pragma once

#include <cstdint>

namespace shoal {

class Net;

// Receives marks on the solver's thread, in this order, for each iteration: kBegin, then for its
// step, or each of its local steps, kStep, kPassed and kUpdated, then kEnd. An iteration that is
// left out has no kPassed, or no kUpdated.
class Meter {
 public:
  virtual ~Meter() = default;
  enum class Mark {
    kBegin,    // the updater is about to be told of the iteration: it may wait in that
    kStep,     // the passes begin
    kPassed,   // the last backward pass is over
    kUpdated,  // the updater is done with the step
    kEnd,
  };
  // Called when training of `net` begins, or goes on, at this iteration: time counts from here.
  // Until the next call the net is there at every mark.
  virtual void start(std::int64_t iteration, const Net& net) = 0;
  // Receives a mark, with the seconds waited so far for data and for rows.
  virtual void mark(Mark mark, std::int64_t iteration, double data_waited, double rows_waited) = 0;
};

}  // namespace shoal
