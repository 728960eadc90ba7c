// Lends memory between the two ends of a link if they are on one machine, and counts what this end
// has lent, and what it borrows.
#pragma once

#include <deque>
#include <set>

#include "shoal/table/link/handover.h"
#include "shoal/table/link/link.h"

namespace shoal::table {

// The other end's memory, and the payloads still read there. Lasts as long as one of them does. On
// any thread.
struct KeptPayloads {
  KeptPayloads(BorrowedMemory borrowed, std::function<void()> given_back)
      : memory(std::move(borrowed)), wake(std::move(given_back)) {}

  const BorrowedMemory memory;
  const std::function<void()> wake;  // called when one of them is looked at no more
  Mutex mutex;
  std::set<std::uint64_t> numbers GUARDED_BY(mutex);
};

// The memory of a link. On the link's strand.
class LinkMemory {
 public:
  // `most` bytes that the other end has not come to may be lent, and a payload more. `handover` may
  // be null.
  LinkMemory(std::shared_ptr<Handover> handover, std::shared_ptr<TrafficCounters> traffic,
             std::size_t most)
      : handover_(std::move(handover)), traffic_(std::move(traffic)), most_(most) {}
  ~LinkMemory();
  LinkMemory(const LinkMemory&) = delete;

  // Takes the memory that the rank at the other end offered: from here on borrow() finds it. An
  // error: it is not available, which the log then says. `wake` is called, on any thread, when
  // taken() has more to send.
  void use(Result<BorrowedMemory> memory, Rank rank, std::function<void()> wake);

  // Returns the place of the message's payload in this end's memory. Copies it there if it is
  // elsewhere, long enough and there is room. Returns nothing before the other end has the memory.
  std::optional<Lent> lend(const Message& message);
  // Returns whether the other end has yet to come to some payloads on their way.
  bool waits() const { return taken_ < returned_ + lent_.size(); }
  bool has_room() const { return bytes_ < most_; }
  // Takes payloads back. An error: the other end breaks the protocol.
  Status take_back(const Taken& taken);

  // Returns the bytes. Good until the next call, or with keep() longer.
  Result<std::span<const std::byte>> borrow(const Lent& lent);
  // Keeps the payload that was borrowed last as it is until the returned owner is gone.
  std::shared_ptr<const void> keep();
  // Returns the Taken to send for payloads that were borrowed, or are no longer needed, since the
  // last call.
  std::optional<Message> taken();
  bool owes() const { return kept_ && state() != said_; }  // that

 private:
  Taken state() const;

  const std::shared_ptr<Handover> handover_;
  const std::shared_ptr<TrafficCounters> traffic_;
  const std::size_t most_;
  bool may_lend_ = false;  // the other end has the memory
  // Payloads that the other end may still read, oldest first.
  std::deque<Payload> lent_;
  std::uint64_t taken_ = 0, returned_ = 0;  // payloads, as Taken counts them
  std::size_t bytes_ = 0;                   // of those lent and not taken
  std::shared_ptr<KeptPayloads> kept_;      // null before use()
  std::uint64_t borrowed_ = 0;              // payloads
  std::optional<Taken> said_;
};

}  // namespace shoal::table
