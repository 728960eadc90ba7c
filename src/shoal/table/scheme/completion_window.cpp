#include "shoal/table/scheme/completion_window.h"

#include <algorithm>

#include "shoal/base/error.h"
#include "shoal/base/text.h"

namespace shoal::table {

void CompletionWindow::join(int worker, Instant) {
  workers_[worker] = {};
  if (!begun_) {
    limit_ = std::max(limit_, static_cast<std::int64_t>(workers_.size()));
    return;
  }
  ring_.insert(ring_.begin() + static_cast<std::ptrdiff_t>(next_), worker);
  ++next_;
  ++limit_;
}

void CompletionWindow::leave(int worker, Instant) {
  workers_.erase(worker);
  if (static_cast<std::int64_t>(ring_.size()) == limit_)
    ring_.erase(ring_.begin() + static_cast<std::ptrdiff_t>(next_));
  if (static_cast<std::int64_t>(next_) == --limit_) next_ = 0;
}

void CompletionWindow::ready(int worker, Clock, const TaskReport&, Instant) {
  begun_ = true;
  starts_.push_back({.worker = worker});
}

Verdict CompletionWindow::judge(int number, Clock, const TaskReport&, Instant) {
  begun_ = true;
  Worker& worker = workers_.at(number);
  const bool full = static_cast<std::int64_t>(ring_.size()) == limit_;
  const bool fresh = !full || std::ranges::count(ring_, number) > 0;
  if (full)
    ring_[next_] = number;
  else
    ring_.push_back(number);
  next_ = (next_ + 1) % static_cast<std::size_t>(limit_);
  const bool all_the_same = merge_every_ > 0 && (worker.in_a_row + 1) % merge_every_ == 0;
  if (fresh || all_the_same) {
    ++worker.counted;
    worker.in_a_row = fresh ? 0 : worker.in_a_row + 1;
    return Verdict::kPush;
  }
  ++worker.dropped;
  if (++worker.in_a_row == kStarved && merge_every_ == 0)
    remarks_.push_back(
        {number, str("has had its last ", kStarved, " tasks thrown away: ", limit_,
                     " others or more were finished during each. A larger weedout, or "
                     "merge_every, lets it count")});
  return Verdict::kDrop;
}

std::string CompletionWindow::describe() const {
  std::vector<std::string> ring, workers;
  for (const int worker : ring_) ring.push_back(str(worker));
  for (const auto& [number, worker] : workers_)
    workers.push_back(str('[', number, ", ", worker.counted, ", ", worker.dropped, ']'));
  return str("{\"limit\": ", limit_, ", \"next\": ", next_, ", \"ring\": [", shoal::join(ring),
             "], \"workers\": [", shoal::join(workers), "]}");
}

}  // namespace shoal::table
