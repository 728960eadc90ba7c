// Messages that arrive once and in order though the connections that carry them may break: each
// side keeps what it sent until the other has counted it (Topic::kHeard). On one strand.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "shoal/table/link/link.h"

namespace shoal::table {

class ReliableChannel {
 public:
  // A connection is there. Each side first says how many messages it has received; the other then
  // sends the rest again.
  void opened(std::shared_ptr<Link> link);
  void closed() { link_.reset(); }
  void send(Message message);
  // Returns whether the message is one of the channel's; if not, it was a count. An error: the peer
  // counts messages that were not sent.
  Result<bool> received(const Message& message);
  // Nothing is on its way to a peer that is connected.
  bool idle() const { return uncounted_.empty() || !link_; }

 private:
  void send_count() const;

  std::shared_ptr<Link> link_;
  bool was_counted_ = false;       // the peer has sent its count over this link
  std::deque<Message> uncounted_;  // sent, and not counted yet
  std::uint64_t counted_ = 0;      // messages of this side, by the peer
  std::uint64_t received_ = 0;
};

}  // namespace shoal::table
