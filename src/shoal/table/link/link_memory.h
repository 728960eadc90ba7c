// The memory that the two ends of a link lend each other if they are on one machine: what this end
// has lent, and what it borrows.
#pragma once

#include <deque>

#include "shoal/table/link/handover.h"
#include "shoal/table/link/link.h"

namespace shoal::table {

// On the link's strand.
class LinkMemory {
 public:
  // `most` bytes may be lent at a time, and a payload more. `handover` may be null.
  LinkMemory(std::shared_ptr<Handover> handover, std::shared_ptr<TrafficCounters> traffic,
             std::size_t most)
      : handover_(std::move(handover)), traffic_(std::move(traffic)), most_(most) {}
  ~LinkMemory();
  LinkMemory(const LinkMemory&) = delete;

  // The memory that the rank at the other end offered: from here on borrow() finds it. An error: it
  // cannot be had, which the log then says.
  void use(Result<BorrowedMemory> memory, Rank rank);

  // Where the message's payload lies in this end's memory; it is copied there if it does not, that
  // is worth it and there is room. Nothing before the other end has the memory.
  std::optional<Lent> lend(const Message& message);
  // Whether payloads are on their way to which the other end has not come yet.
  bool waits() const { return !lent_.empty(); }
  bool has_room() const { return bytes_ < most_; }
  // An error: the other end breaks the protocol.
  Status take_back(const Taken& taken);

  Result<std::span<const std::byte>> borrow(const Lent& lent);
  // Returns what to say of what was borrowed since the last call, and is needed no more.
  std::optional<Message> taken();
  bool owes() const { return owes_; }  // that

 private:
  const std::shared_ptr<Handover> handover_;
  const std::shared_ptr<TrafficCounters> traffic_;
  const std::size_t most_;
  bool may_lend_ = false;       // the other end has the memory
  std::deque<Payload> lent_;    // that it has not taken, oldest first
  std::size_t bytes_ = 0;       // of these
  std::uint64_t returned_ = 0;  // payloads
  std::optional<BorrowedMemory> borrows_;
  std::uint64_t taken_ = 0;
  bool owes_ = false;  // a Taken
};

}  // namespace shoal::table
