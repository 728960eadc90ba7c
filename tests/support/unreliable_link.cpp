#include "support/unreliable_link.h"

#include <algorithm>
#include <utility>

#include "shoal/base/log.h"
#include "support/messages.h"

namespace shoal::table {

UnreliableLink::UnreliableLink(VirtualTime& time, const UnreliableLinkOptions& options,
                               Random random, UnreliableEnd first, UnreliableEnd second)
    : time_(time), options_(options), random_(random), ends_{std::move(first), std::move(second)} {
  options_.link.out = {&directions_[0].port, &directions_[1].port};
  connect();
}

void UnreliableLink::connect() {
  const Random random = random_.fork(str("connection ", connections_.size()));
  connections_.push_back(
      std::make_unique<SimulatedLink>(time_, options_.link, random, end(0), end(1)));
}

// Returns an end: nothing leaves or arrives by a connection that is broken.
SimulatedEnd UnreliableLink::end(std::size_t side) {
  const auto is_up = [this, number = connections_.size() + 1] {
    return up_ && number == connections_.size();
  };
  return {.received =
              [this, side, is_up](Message&& message) {
                if (is_up()) emerge(1 - side, message);
              },
          .next = [this, side, is_up] { return is_up() ? next(side) : std::nullopt; }};
}

void UnreliableLink::send(std::size_t from, Message message) {
  if (!up_) return;
  wait(from, message);
  connections_.back()->send(from, or_throw(decode(test::whole(message), Stage::kPeer)));
}

// Returns a message. Those that are late after they came out of the connection fill the window too.
std::optional<Message> UnreliableLink::next(std::size_t from) {
  if (!ends_[from].next || directions_[from].waiting >= options_.link.window) return std::nullopt;
  std::optional<Message> message = ends_[from].next();
  if (message) wait(from, *message);
  return message;
}

void UnreliableLink::wait(std::size_t from, const Message& message) {
  Direction& direction = directions_[from];
  direction.waiting += frame_bytes(message);
  direction.most_waiting = std::max(direction.most_waiting, direction.waiting);
}

// Handles a message that has come out of the connection: it arrives now, or as faults want it.
void UnreliableLink::emerge(std::size_t from, const Message& message) {
  const LinkFaults& faults = options_.faults;
  if (happens(faults.reset)) return cut();
  Direction& direction = directions_[from];
  Instant when = time_.now();
  if (happens(faults.reorder)) {
    when += up_to(faults.late);
  } else {
    if (happens(faults.delay)) when += up_to(faults.late);
    when = direction.last = std::max(when, direction.last);
  }
  const std::string bytes = test::whole(encode(message, ++direction.requests));
  const bool is_lost = happens(faults.lose);
  direction.lost += is_lost;
  const std::size_t connection = connections_.size();
  const auto is_over = [this, connection] { return !up_ || connection != connections_.size(); };
  time_.at(when, [this, from, bytes, is_lost, is_over] {
    if (is_over()) return;
    directions_[from].waiting -= bytes.size();
    if (!is_lost) arrive(from, bytes);
    wake(from);
  });
  if (happens(faults.repeat))
    time_.at(when + up_to(faults.late), [this, from, bytes, is_over] {
      if (!is_over()) arrive(from, bytes);
    });
}

void UnreliableLink::arrive(std::size_t from, std::string bytes) {
  const bool is_damaged = happens(options_.faults.damage);
  if (is_damaged) bytes[random_.below(bytes.size())] ^= static_cast<char>(1 << random_.below(8));
  Result<Message> message = decode(bytes, Stage::kPeer);
  CHECK(message.ok() != is_damaged)
      << (message.ok() ? "damage was not seen" : message.error().message);
  if (message.ok())
    ends_[1 - from].received(std::move(message).value());
  else
    cut();
}

void UnreliableLink::cut() {
  if (!up_) return;
  up_ = false;
  ++resets_;
  for (Direction& direction : directions_) {
    direction.waiting = 0;
    direction.last = time_.now();
  }
  time_.after(up_to(options_.faults.down), [this] {
    up_ = true;
    connect();
    for (const UnreliableEnd& end : ends_)
      if (end.up) end.up();
    wake(0);
    wake(1);
  });
}

UnreliableLink::Counters UnreliableLink::counters(std::size_t from) const {
  const Direction& direction = directions_[from];
  return {.frames = direction.port.frames,
          .bytes = direction.port.bytes,
          .lost = direction.lost,
          .resets = resets_,
          .most_waiting = direction.most_waiting};
}

}  // namespace shoal::table
