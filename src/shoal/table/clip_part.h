// The rows of one server in a clip of the norm (Plan::clip): each row's merge of a clock waits
// until all rows of all servers have theirs, and the coordinator has added up the norm. A server
// that has taken over a lost one's rows has two of these, since the rows of the lost one may be a
// clock behind its own: their last update was not copied.
#pragma once

#include <algorithm>
#include <vector>

#include "shoal/table/outbox.h"
#include "shoal/table/shard_row.h"

namespace shoal::table {

class ClipPart {
 public:
  ClipPart(std::uint16_t server, Generation generation, Clock clock, std::vector<ShardRow*> rows)
      : server_(server), generation_(generation), clock_(clock), rows_(std::move(rows)) {
    for (const ShardRow* row : rows_)
      clock_ = row == rows_[0] ? next_clock(*row) : std::min(clock_, next_clock(*row));
    count_again();
  }

  Clock clock() const { return clock_; }  // whose norm is the next
  bool is_sent() const { return is_sent_; }
  const std::vector<ShardRow*>& rows() const { return rows_; }
  // Returns whether the row's next merge is of a clock whose norm is not the next.
  bool is_ahead(const ShardRow& row) const { return next_clock(row) > clock_; }
  // Keeps the merge until the norm is known.
  void hold(ShardRow& row, Merge merge, double squares) {
    row.pending = {std::move(merge), squares};
    ++complete_;
  }
  // Forgets the merges that wait.
  void forget() {
    for (ShardRow* row : rows_) row->pending.reset();
    count_again();
  }
  // Notes that a norm was sent of what is no more: only the lost worker had pushed.
  void take_back_if_incomplete() { is_sent_ = is_sent_ && complete_ == rows_.size(); }

  void send(Outbox& out) const {
    double squares = 0;
    for (const ShardRow* row : rows_) squares += row->pending ? row->pending->squares : 0;
    out.push_back({kCoordinator, Norm{clock_, server_, squares, generation_}});
  }
  // Sends the norm when it is complete, and a worker goes on to `end` or farther. A server without
  // rows that learn is always complete: the coordinator waits for its Norm too.
  void send_if_complete(Clock end, Outbox& out) {
    if (is_sent_ || complete_ < rows_.size() || end <= clock_) return;
    is_sent_ = true;
    send(out);
  }
  // Goes on to the next clock. Returns the rows whose merges are due.
  std::vector<ShardRow*> pass() {
    std::vector<ShardRow*> due;
    for (ShardRow* row : rows_)
      if (row->pending) due.push_back(row);
    is_sent_ = false;
    complete_ = 0;
    ++clock_;
    return due;
  }

 private:
  // Returns the clock of the row's next merge. In lockstep each merge is that of a clock.
  static Clock next_clock(const ShardRow& row) {
    return std::ranges::max(row.view().workers, {}, &WorkerView::merged).merged;
  }
  void count_again() {
    complete_ = static_cast<std::size_t>(std::ranges::count_if(
        rows_, [this](const ShardRow* row) { return row->pending || is_ahead(*row); }));
  }

  std::uint16_t server_;
  Generation generation_;
  Clock clock_;
  std::vector<ShardRow*> rows_;
  std::size_t complete_ = 0;  // rows with a merge that waits, or that is done
  bool is_sent_ = false;
};

}  // namespace shoal::table
