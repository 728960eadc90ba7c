// The fragments of a net's rows, and the steps at which a worker exchanges them (scheme streaming).
#pragma once

#include <string>
#include <vector>

#include "shoal/parallel/row_map.h"
#include "shoal/table/scheme.h"

namespace shoal::parallel {

// The rows are so many times more than fragments, if they are of equal length: a fragment's size
// then differs from the mean by an eighth at most.
inline constexpr std::size_t kPiecesOfFragment = 8;

class Fragments {
 public:
  // Divides the rows that learn, in the order of the layers, into `count` parts of about the same
  // size. Throws ConfigError if there are not that many rows; `name` stands in front of its words.
  Fragments(const RowMap& map, int count, const std::string& name);

  int count() const { return static_cast<int>(rows_.size()); }
  const std::vector<table::RowId>& rows(int fragment) const { return rows_[fragment]; }
  int of(table::RowId row) const { return of_[row]; }  // of one that learns

 private:
  std::vector<std::vector<table::RowId>> rows_;  // by fragment
  std::vector<int> of_;                          // by row; -1: it does not learn
};

// The clock of one worker's fragments. Fragment f of F is sent behind step (f + 1) M / F, rounded
// up, of each round of M steps, and its answer is applied `overlap` steps later.
class FragmentClock {
 public:
  explicit FragmentClock(const table::Task& task)
      : overlap_(task.overlap), sent_at_(task.fragments, kHere), was_sent_(task.fragments) {}

  int count() const { return static_cast<int>(sent_at_.size()); }
  void step_done() { ++steps_; }
  // Returns whether the fragment is sent now, behind the done-th of a round of so many steps.
  bool leaves(int fragment, int done, int steps) const {
    const std::int64_t last = (std::int64_t{fragment} + 1) * steps;
    return done == (last + count() - 1) / count();
  }
  void send(int fragment) {
    sent_at_[fragment] = steps_;
    was_sent_[fragment] = true;
  }
  // Returns whether it was sent, and the answer has not been applied.
  bool is_away(int fragment) const { return sent_at_[fragment] != kHere; }
  // Returns whether the fragment's answer is to be applied before the next step.
  bool is_due(int fragment) const {
    return is_away(fragment) && steps_ - sent_at_[fragment] >= overlap_;
  }
  void come(int fragment) { sent_at_[fragment] = kHere; }
  // The worker goes on from an earlier generation, in which it has sent all fragments.
  void go_on() { was_sent_.assign(was_sent_.size(), true); }
  // Returns the part of a round's steps that is behind a fragment's next push: less than 1 for the
  // first one.
  double part_of_round(int fragment) const {
    return was_sent_[fragment] ? 1.0 : (fragment + 1.0) / count();
  }

 private:
  static constexpr std::int64_t kHere = -1;

  const int overlap_;
  std::int64_t steps_ = 0;
  std::vector<std::int64_t> sent_at_;  // by fragment: after so many steps; kHere: no answer is due
  std::vector<bool> was_sent_;         // by fragment
};

}  // namespace shoal::parallel
