// Carries messages that arrive once and in order though the connections that carry them may break:
// each side keeps what it sent until the other has counted it (Topic::kHeard). On one strand.
#pragma once

#include <deque>

#include "shoal/table/broken.h"
#include "shoal/table/coordinator/record.h"
#include "shoal/table/link/link.h"
#include "shoal/table/wire.h"

namespace shoal::table {

class ReliableChannel {
 public:
  // More than a link keeps for its peer before it stops reading.
  static constexpr std::size_t kMostHeld = 256u << 20;

  // Takes a connection. Each side first says how many messages it has counted; the other then sends
  // the rest again.
  void opened(std::shared_ptr<Link> link) {
    link_ = std::move(link);
    was_counted_ = false;
    repeats_ = received_ - said_;
    send_count();
  }
  void closed() { link_.reset(); }
  void send(Message message) {
    if (link_ && was_counted_) link_->send(message);
    held_ += size_while_waiting(message);
    uncounted_.push_back(std::move(message));
  }
  // Returns whether the message is a new one of the channel's; if not, it was a count, or a repeat.
  // An error: the peer counts messages that were not sent, or asks for more and counts none.
  Result<bool> received(const Message& message) {
    const Ask* ask = std::get_if<Ask>(&message);
    if (!ask || ask->topic != Topic::kHeard) {
      if (held_ > kMostHeld)
        return broken("it asks, and does not count the answers: ", held_,
                      " bytes are kept for it already");
      if (repeats_ > 0) return --repeats_, false;
      ++received_;
      return true;
    }
    const auto count = static_cast<std::uint64_t>(ask->clock);
    if (count < counted_ || count - counted_ > uncounted_.size())
      return broken("it confirms ", ask->clock, " messages, but ", sent(), " were sent and ",
                    counted_, " were confirmed before");
    forget(count);
    if (was_counted_ || !link_) return false;
    was_counted_ = true;
    for (const Message& again : uncounted_) link_->send(again);
    return false;
  }
  // Tells the peer that it need not keep the first `count` messages.
  void count(std::uint64_t count) {
    said_ = count;
    if (link_) send_count();
  }
  // Forgets messages that the peer has counted.
  void forget(std::uint64_t count) {
    for (; counted_ < count && !uncounted_.empty(); ++counted_) {
      held_ -= size_while_waiting(uncounted_.front());
      uncounted_.pop_front();
    }
  }
  // Returns whether nothing is on its way to a peer that is connected.
  bool idle() const { return uncounted_.empty() || !link_; }

  std::uint64_t received() const { return received_; }  // messages
  std::uint64_t counted() const { return counted_; }    // by the peer
  std::uint64_t sent() const { return counted_ + uncounted_.size(); }

  // ---- a conversation that another process began, before there is a connection ----
  Conversation save() const {
    Conversation saved{received_, counted_, {}};
    for (const Message& message : uncounted_) saved.uncounted.push_back(encode(message, 0).head);
    return saved;
  }
  Status load(const Conversation& saved) {
    received_ = said_ = saved.received;
    counted_ = saved.counted;
    uncounted_.clear();
    held_ = 0;
    for (const std::string& frame : saved.uncounted) {
      Result<Message> message = decode(frame, Stage::kPeer);
      if (!message.ok()) return message.error();
      send(std::move(message).value());
    }
    return {};
  }
  // Counts a message that the other process has received. If there is a connection here already it
  // comes again over that.
  void replay() {
    said_ = ++received_;
    if (link_) ++repeats_;
  }

 private:
  void send_count() const {
    link_->send(Ask{.topic = Topic::kHeard, .clock = static_cast<Clock>(said_), .body = {}});
  }

  std::shared_ptr<Link> link_;
  bool was_counted_ = false;       // the peer has sent its count over this link
  std::deque<Message> uncounted_;  // sent, and not counted yet
  std::size_t held_ = 0;           // bytes of these
  std::uint64_t counted_ = 0;      // messages of this side, by the peer
  std::uint64_t received_ = 0;
  std::uint64_t said_ = 0;     // of these, that the peer need not keep
  std::uint64_t repeats_ = 0;  // messages that come again over this link
};

}  // namespace shoal::table
