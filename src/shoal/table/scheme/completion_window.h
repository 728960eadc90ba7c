// Weed-out by completions: a worker's task counts if it was also among the last to finish
// something. Source: SpeeDO's --weedout.
#pragma once

#include <algorithm>
#include <map>

#include "shoal/base/error.h"
#include "shoal/table/coordinator/state.h"

namespace shoal::table {

// A ring of the workers of the last tasks finished, counted or not: of as many tasks as there were
// workers at the start, if that is more than `window`. A task counts if its worker is in the ring,
// or if the ring is not full yet; so once it is full, the first task of a worker that has finished
// none does not. Of a worker whose tasks are all thrown away, every `merge_every`-th counts all the
// same; 0: none.
class CompletionWindow final : public Pacer {
 public:
  static constexpr int kStarved = 10;  // tasks thrown away in a row, for a remark

  CompletionWindow(std::int64_t window, std::int64_t merge_every)
      : limit_(window), merge_every_(merge_every) {}

  // A worker that joins after the first question counts as the last to have finished.
  void join(int worker, Instant) override {
    workers_[worker] = 0;
    if (!begun_) {
      limit_ = std::max(limit_, workers_.size());
      return;
    }
    ring_.insert(ring_.begin() + next_, worker);
    ++limit_;
    next_ = (next_ + 1) % limit_;
  }
  // Forgets the oldest in the ring, whichever worker left.
  void leave(int worker, Instant) override {
    workers_.erase(worker);
    if (is_full()) ring_.erase(ring_.begin() + next_);
    if (next_ == --limit_) next_ = 0;
  }
  void ready(int worker, Clock, const TaskReport&, Instant) override {
    begun_ = true;
    starts_.push_back({.worker = worker});
  }
  Verdict judge(int worker, Clock, const TaskReport&, Instant) override {
    begun_ = true;
    int& in_a_row = workers_.at(worker);
    const bool fresh = !is_full() || std::ranges::count(ring_, worker) > 0;
    if (is_full())
      ring_[next_] = worker;
    else
      ring_.push_back(worker);
    next_ = (next_ + 1) % limit_;
    const bool all_the_same = merge_every_ > 0 && (in_a_row + 1) % merge_every_ == 0;
    in_a_row = fresh ? 0 : in_a_row + 1;
    if (fresh || all_the_same) return Verdict::kPush;
    if (in_a_row == kStarved && merge_every_ == 0)
      remarks_.push_back(
          str("has had its last ", kStarved, " tasks dropped: during each, ", limit_,
              " or more others were finished. A larger weedout, or merge_every, keeps its tasks"));
    return Verdict::kDrop;
  }
  // The workers that finished last, the index of the oldest once the ring is full, and the ring's
  // size.
  const std::vector<int>& ring() const { return ring_; }
  std::size_t next() const { return next_; }
  std::size_t limit() const { return limit_; }

  void save(StateWriter& io) override { state(io); }
  void load(StateReader& io) override { state(io); }

 private:
  void state(auto& io) { io(limit_, begun_, ring_, next_, workers_); }
  bool is_full() const { return ring_.size() == limit_; }

  std::size_t limit_;  // of the ring
  const std::int64_t merge_every_;
  bool begun_ = false;
  std::vector<int> ring_;
  std::size_t next_ = 0;        // the oldest, once the ring is full
  std::map<int, int> workers_;  // tasks in a row that were late
};

}  // namespace shoal::table
