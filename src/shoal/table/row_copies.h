// Keeps a server's rows and their copies on another server alike (Plan::copies), and says which of
// the rows that it has are its own to answer for.
#pragma once

#include <utility>
#include <vector>

#include "shoal/table/shard_row.h"

namespace shoal::table {

class RowCopies {
 public:
  // The plan outlives this.
  RowCopies(const Plan& plan, int server) : plan_(plan), server_(server) {}

  // Returns whether the server has the row, as its own or as a copy.
  bool has(const Row& row) const {
    return row.server == server_ || (plan_.is_copied(row.server) && row.writer == kEveryWorker &&
                                     plan_.copy_of(row.server) == server_);
  }
  // Returns whether workers are to be answered for the row, rather than by its own server.
  bool leads(const ShardRow& row) const {
    return row.row.server == server_ || row.row.server == taken_over_;
  }
  // Returns whether another server has a copy of the row, and needs its updates.
  bool is_copied(const ShardRow& row) const {
    return row.row.server == server_ && plan_.is_copied(server_) && !copy_is_lost_;
  }
  // Returns where updates go, as Outgoing::to has it.
  int copy() const { return to_server(plan_.copy_of(server_)); }

  // Handles an Update of the server whose row this is a copy of; `follow` applies it.
  Status take(const Update& update, ShardRow& row, const Codec& codec,
              const std::function<void()>& follow, Outbox& out) const;
  // Handles what the server with a copy of the row says of it.
  Status take(const Copied& copied, ShardRow& row, Outbox& out) const;

  // Notes that a server is lost. Returns whether it had the copies of this server's rows.
  bool lose_copy(int server) {
    return plan_.is_copied(server_) && plan_.copy_of(server_) == server &&
           !std::exchange(copy_is_lost_, true);
  }
  // Takes over the rows of a lost server that are copied here. Returns whether there are such rows.
  bool take_over(int server) {
    if (!plan_.is_copied(server) || plan_.copy_of(server) != server_ || taken_over_ >= 0)
      return false;
    taken_over_ = server;
    return true;
  }
  // Holds a message of a worker that knows of a loss before this server does.
  void hold_back(int worker, Message message) { early_.emplace_back(worker, std::move(message)); }
  std::vector<std::pair<int, Message>> take_held_back() { return std::exchange(early_, {}); }

 private:
  const Plan& plan_;
  const int server_;
  int taken_over_ = -1;        // the lost server whose rows are this one's now
  bool copy_is_lost_ = false;  // the server with the copies is lost
  std::vector<std::pair<int, Message>> early_;
};

}  // namespace shoal::table
