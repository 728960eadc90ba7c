// Carries messages that arrive once and in order though the connections that carry them may break:
// each side keeps what it sent until the other has counted it (Topic::kHeard). On one strand.
#pragma once

#include <deque>

#include "shoal/table/broken.h"
#include "shoal/table/link/link.h"

namespace shoal::table {

class ReliableChannel {
 public:
  // More than a link keeps for its peer before it stops reading.
  static constexpr std::size_t kMostHeld = 256u << 20;

  // Takes a connection. Each side first says how many messages it has received; the other then
  // sends the rest again.
  void opened(std::shared_ptr<Link> link) {
    link_ = std::move(link);
    was_counted_ = false;
    send_count();
  }
  void closed() { link_.reset(); }
  void send(Message message) {
    if (link_ && was_counted_) link_->send(message);
    held_ += size_while_waiting(message);
    uncounted_.push_back(std::move(message));
  }
  // Returns whether the message is one of the channel's; if not, it was a count. An error: the peer
  // counts messages that were not sent, or asks for more and counts none.
  Result<bool> received(const Message& message) {
    const Ask* ask = std::get_if<Ask>(&message);
    if (!ask || ask->topic != Topic::kHeard) {
      if (held_ > kMostHeld)
        return broken("it asks, and does not count the answers: ", held_,
                      " bytes are kept for it already");
      ++received_;
      if (link_) send_count();
      return true;
    }
    const auto count = static_cast<std::uint64_t>(ask->clock);
    if (count < counted_ || count - counted_ > uncounted_.size())
      return broken("it confirms ", ask->clock, " messages, but ", counted_ + uncounted_.size(),
                    " were sent and ", counted_, " were confirmed before");
    for (; counted_ < count; ++counted_) {
      held_ -= size_while_waiting(uncounted_.front());
      uncounted_.pop_front();
    }
    if (was_counted_ || !link_) return false;
    was_counted_ = true;
    for (const Message& again : uncounted_) link_->send(again);
    return false;
  }
  // Returns whether nothing is on its way to a peer that is connected.
  bool idle() const { return uncounted_.empty() || !link_; }

 private:
  void send_count() const {
    link_->send(Ask{.topic = Topic::kHeard, .clock = static_cast<Clock>(received_), .body = {}});
  }

  std::shared_ptr<Link> link_;
  bool was_counted_ = false;       // the peer has sent its count over this link
  std::deque<Message> uncounted_;  // sent, and not counted yet
  std::size_t held_ = 0;           // bytes of these
  std::uint64_t counted_ = 0;      // messages of this side, by the peer
  std::uint64_t received_ = 0;
};

}  // namespace shoal::table
