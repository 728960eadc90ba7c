#include "shoal/table/link/conversation.h"

#include <utility>
#include <variant>

namespace shoal::table {
namespace {

Message heard(std::uint64_t count) {
  return Ask{.topic = Topic::kHeard, .clock = static_cast<Clock>(count), .body = {}};
}

}  // namespace

void Conversation::opened(std::shared_ptr<Link> link) {
  link_ = std::move(link);
  counted_ = false;
  link_->send(heard(received_));
}

void Conversation::closed() { link_.reset(); }

void Conversation::send(Message message) {
  if (link_ && counted_) link_->send(message);
  unheard_.push_back(std::move(message));
}

Result<bool> Conversation::received(const Message& message) {
  const Ask* ask = std::get_if<Ask>(&message);
  if (!ask || ask->topic != Topic::kHeard) {
    ++received_;
    if (link_) link_->send(heard(received_));
    return true;
  }
  const std::uint64_t count = static_cast<std::uint64_t>(ask->clock);
  if (count < heard_ || count - heard_ > unheard_.size())
    return Error{Code::kPeer,
                 str("it says to have heard ", ask->clock, " messages of ",
                     heard_ + unheard_.size(), " that were sent, and ", heard_, " before")};
  unheard_.erase(unheard_.begin(), unheard_.begin() + static_cast<std::ptrdiff_t>(count - heard_));
  heard_ = count;
  if (counted_ || !link_) return false;
  counted_ = true;
  for (const Message& again : unheard_) link_->send(again);
  return false;
}

}  // namespace shoal::table
