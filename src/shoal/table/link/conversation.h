// Messages that arrive once and in their order, though the connections that carry them may break:
// each side keeps what it said until the other has counted it (Topic::kHeard). On one strand.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "shoal/table/link/link.h"

namespace shoal::table {

class Conversation {
 public:
  // A connection is there: first each side says what it has heard, then what the other missed is
  // said again.
  void opened(std::shared_ptr<Link> link);
  void closed();
  void send(Message message);
  // Whether the message is one of the conversation's; otherwise it was a count. An error: the peer
  // counts what nobody said.
  Result<bool> received(const Message& message);
  // Nothing is on its way.
  bool idle() const { return unheard_.empty(); }
  bool open() const { return link_ != nullptr; }

 private:
  std::shared_ptr<Link> link_;
  bool counted_ = false;         // the peer has said what it heard, over this link
  std::deque<Message> unheard_;  // said, and not counted yet
  std::uint64_t heard_ = 0;      // of ours, by the peer
  std::uint64_t received_ = 0;
};

}  // namespace shoal::table
