#include "shoal/table/link/reliable_channel.h"

#include <utility>
#include <variant>

namespace shoal::table {

void ReliableChannel::opened(std::shared_ptr<Link> link) {
  link_ = std::move(link);
  was_counted_ = false;
  send_count();
}

void ReliableChannel::send_count() const {
  link_->send(Ask{.topic = Topic::kHeard, .clock = static_cast<Clock>(received_), .body = {}});
}

void ReliableChannel::send(Message message) {
  if (link_ && was_counted_) link_->send(message);
  uncounted_.push_back(std::move(message));
}

Result<bool> ReliableChannel::received(const Message& message) {
  const Ask* ask = std::get_if<Ask>(&message);
  if (!ask || ask->topic != Topic::kHeard) {
    ++received_;
    if (link_) send_count();
    return true;
  }
  const auto count = static_cast<std::uint64_t>(ask->clock);
  if (count < counted_ || count - counted_ > uncounted_.size())
    return Error{Code::kPeer,
                 str("it says to have heard ", ask->clock, " messages of ",
                     counted_ + uncounted_.size(), " that were sent, and ", counted_, " before")};
  for (; counted_ < count; ++counted_) uncounted_.pop_front();
  if (was_counted_ || !link_) return false;
  was_counted_ = true;
  for (const Message& again : uncounted_) link_->send(again);
  return false;
}

}  // namespace shoal::table
