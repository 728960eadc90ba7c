// Weed-out by completions: what a worker has done counts if it was also among the last to finish
// something. Source: SpeeDO's --weedout.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "shoal/table/pacer.h"

namespace shoal::table {

// A ring of who finished the last tasks, counted or not: of as many as there were workers at the
// start, if that is more than `window`. A task counts if its worker is in the ring, or if the ring
// is not full yet; so once it is full, the first task of one who never finished any does not. Of a
// worker whose tasks are all thrown away, every `merge_every`-th counts all the same; 0: none.
class CompletionWindow final : public Pacer {
 public:
  static constexpr int kStarved = 10;  // tasks thrown away in a row, for a remark

  CompletionWindow(std::int64_t window, std::int64_t merge_every)
      : limit_(window), merge_every_(merge_every) {}

  // A worker that joins after the first question counts as the last to have finished.
  void join(int worker, Instant now) override;
  // The oldest in the ring is forgotten, whoever left.
  void leave(int worker, Instant now) override;
  void ready(int worker, Clock clock, const TaskReport& last, Instant now) override;
  Verdict judge(int worker, Clock clock, const TaskReport& report, Instant now) override;
  // {"limit": 3, "next": 0, "ring": [0, 2, 1], "workers": [[0, 2, 0], ...]}: of each worker what
  // counted and what did not.
  std::string describe() const override;
  std::vector<Remark> take_remarks() override { return std::exchange(remarks_, {}); }

 private:
  struct Worker {
    std::int64_t counted = 0, dropped = 0;
    int in_a_row = 0;
  };

  std::int64_t limit_;  // of the ring
  const std::int64_t merge_every_;
  bool begun_ = false;
  std::vector<int> ring_;
  std::size_t next_ = 0;  // the oldest, once the ring is full
  std::map<int, Worker> workers_;
  std::vector<Remark> remarks_;
};

}  // namespace shoal::table
