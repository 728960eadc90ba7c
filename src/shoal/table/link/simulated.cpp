#include "shoal/table/link/simulated.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/table/wire.h"

namespace shoal::table {

SimulatedLink::SimulatedLink(VirtualTime& time, const SimulatedLinkOptions& options, Random random,
                             SimulatedEnd first, SimulatedEnd second)
    : time_(time), options_(options), random_(random), ends_{std::move(first), std::move(second)} {}

SimulatedLink::Letter SimulatedLink::seal(Message message, std::size_t from) {
  Letter letter{.bytes = {}, .message = {}, .from = from};
  if (options_.as_messages) {
    letter.size = frame_bytes(message);
    letter.message = std::move(message);
    return letter;
  }
  Frame frame = encode(message, ++directions_[from].requests);
  const std::span<const std::byte> bytes = frame.payload.bytes;
  letter.size = frame.bytes();
  letter.bytes = std::move(frame.head);
  letter.bytes.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return letter;
}

void SimulatedLink::send(std::size_t from, Message message) {
  if (!up_) return;
  Direction& direction = directions_[from];
  direction.queue.push_back(seal(std::move(message), from));
  direction.queued += direction.queue.back().size;
  direction.counters.most_waiting =
      std::max(direction.counters.most_waiting, direction.queued + direction.on_the_way);
  pump(from);
}

void SimulatedLink::pump(std::size_t from) {
  Direction& direction = directions_[from];
  while (up_ && !direction.busy && direction.on_the_way < options_.window) {
    if (!direction.queue.empty()) {
      direction.queued -= direction.queue.front().size;
      travelling_.splice(travelling_.end(), direction.queue, direction.queue.begin());
    } else {
      std::optional<Message> said = ends_[from].next ? ends_[from].next() : std::nullopt;
      if (!said) return;
      travelling_.push_back(seal(*std::move(said), from));
    }
    if (!leave(std::prev(travelling_.end()))) return;
  }
}

bool SimulatedLink::leave(Letters::iterator letter) {
  const std::size_t from = letter->from, bytes = letter->size;
  Direction& direction = directions_[from];
  letter->connection = connection_;
  ++direction.counters.frames;
  direction.counters.bytes += bytes;
  direction.on_the_way += bytes;
  direction.counters.most_waiting =
      std::max(direction.counters.most_waiting, direction.queued + direction.on_the_way);
  if (happens(options_.faults.reset)) {
    travelling_.erase(letter);
    cut();
    return false;
  }
  SimulatedPort own{.bandwidth = options_.bandwidth};
  SimulatedPort* const port = options_.out[from];
  const Instant through =
      std::max(own.pass(time_.now(), bytes), port ? port->pass(time_.now(), bytes) : time_.now());
  if (through == time_.now()) {
    travel(letter);
    return true;
  }
  direction.busy = true;
  time_.at(through, [this, letter] {
    if (forget(letter)) return;
    const std::size_t from = letter->from;
    directions_[from].busy = false;
    travel(letter);
    pump(from);
  });
  return true;
}

void SimulatedLink::travel(Letters::iterator letter) {
  const SimulatedFaults& faults = options_.faults;
  Direction& direction = directions_[letter->from];
  Instant when = time_.now() + options_.latency + up_to(options_.jitter);
  if (happens(faults.reorder)) {
    when += up_to(faults.late);
  } else {
    if (happens(faults.delay)) when += up_to(faults.late);
    when = direction.last = std::max(when, direction.last);
  }
  const bool is_lost = happens(faults.lose);
  if (is_lost) ++direction.counters.lost;
  deliver(letter, when);
  if (happens(faults.repeat)) {
    const auto again = travelling_.insert(travelling_.end(), *letter);
    again->size = 0;
    deliver(again, when + up_to(faults.late));
  }
  letter->is_lost = is_lost;
}

// The last of the letter's bytes is at the other end's port at `when`.
void SimulatedLink::deliver(Letters::iterator letter, Instant when) {
  time_.at(when, [this, letter] {
    if (forget(letter)) return;
    SimulatedPort* const port = options_.in[1 - letter->from];
    const Instant through =
        port == nullptr ? time_.now() : port->take_last(time_.now(), letter->size);
    if (through == time_.now()) return arrive(letter);
    time_.at(through, [this, letter] {
      if (!forget(letter)) arrive(letter);
    });
  });
}

void SimulatedLink::arrive(Letters::iterator letter) {
  const std::size_t from = letter->from;
  directions_[from].on_the_way -= letter->size;
  if (!letter->is_lost) receive(1 - from, *letter);
  travelling_.erase(letter);
  pump(from);
}

bool SimulatedLink::forget(Letters::iterator letter) {
  const bool is_earlier = letter->connection != connection_;
  if (is_earlier) travelling_.erase(letter);
  return is_earlier;
}

void SimulatedLink::receive(std::size_t to, Letter& letter) {
  if (letter.message) return ends_[to].received(*std::move(letter.message));
  std::string& bytes = letter.bytes;
  const bool is_damaged = happens(options_.faults.damage);
  if (is_damaged) bytes[random_.below(bytes.size())] ^= static_cast<char>(1 << random_.below(8));
  Result<Message> message = decode(bytes, Stage::kPeer);
  CHECK(message.ok() != is_damaged)
      << (message.ok() ? "damage was not seen" : message.error().message);
  if (message.ok())
    ends_[to].received(std::move(message).value());
  else
    cut();
}

void SimulatedLink::cut() {
  if (!up_) return;
  up_ = false;
  const std::uint64_t next = ++connection_;
  for (Direction& direction : directions_) {
    ++direction.counters.resets;
    direction.queue.clear();
    direction.queued = direction.on_the_way = 0;
    direction.busy = false;
    direction.last = time_.now();
  }
  time_.after(up_to(options_.faults.down), [this, next] {
    if (next != connection_) return;
    up_ = true;
    for (const SimulatedEnd& end : ends_) {
      if (end.up) end.up();
    }
    pump(0);
    pump(1);
  });
}

}  // namespace shoal::table
