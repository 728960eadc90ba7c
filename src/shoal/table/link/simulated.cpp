#include "shoal/table/link/simulated.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/table/wire.h"

namespace shoal::table {

void VirtualTime::at(Instant when, std::function<void()> work) {
  heap_.push_back({std::max(when, now_), numbers_++, std::move(work)});
  std::push_heap(heap_.begin(), heap_.end());
}

bool VirtualTime::step() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end());
  const Event event = std::move(heap_.back());
  heap_.pop_back();
  now_ = event.when;
  event.work();
  return true;
}

SimulatedLink::SimulatedLink(VirtualTime& time, const SimulatedLinkOptions& options, Random random,
                             SimulatedEnd first, SimulatedEnd second)
    : time_(time), options_(options), random_(random), ends_{std::move(first), std::move(second)} {}

// Of the types that carry numbers, the fields before them are always as long.
std::size_t SimulatedLink::size_of(const Message& message, Direction& direction) {
  const Payload* const payload = payload_of(message);
  if (payload == nullptr || payload->bytes.empty()) return encode(message, 1).bytes();
  std::size_t& head = direction.heads[type_of(message)];
  if (head == 0) head = encode(message, 1).head.size();
  return head + payload->bytes.size();
}

SimulatedLink::Sealed SimulatedLink::seal(const Message& message, Direction& direction) {
  if (options_.as_messages)
    return std::make_shared<const Letter>(
        Letter{.bytes = {}, .message = message, .size = size_of(message, direction)});
  const Frame frame = encode(message, ++direction.requests);
  const std::span<const std::byte> bytes = frame.payload.bytes;
  return std::make_shared<const Letter>(Letter{
      .bytes = frame.head + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
      .message = {},
      .size = frame.bytes()});
}

void SimulatedLink::send(std::size_t from, const Message& message) {
  if (!up_) return;
  Direction& direction = directions_[from];
  direction.queue.push_back(seal(message, direction));
  direction.queued += direction.queue.back()->size;
  direction.counters.most_waiting =
      std::max(direction.counters.most_waiting, direction.queued + direction.on_the_way);
  pump(from);
}

void SimulatedLink::pump(std::size_t from) {
  Direction& direction = directions_[from];
  while (up_ && !direction.busy && direction.on_the_way < options_.window) {
    Sealed letter;
    if (!direction.queue.empty()) {
      letter = std::move(direction.queue.front());
      direction.queue.pop_front();
      direction.queued -= letter->size;
    } else if (const auto& next = ends_[from].next) {
      if (const std::optional<Message> said = next()) letter = seal(*said, direction);
    }
    if (letter == nullptr || !leave(from, letter)) return;
  }
}

bool SimulatedLink::leave(std::size_t from, const Sealed& letter) {
  Direction& direction = directions_[from];
  const std::size_t bytes = letter->size;
  ++direction.counters.frames;
  direction.counters.bytes += bytes;
  direction.on_the_way += bytes;
  direction.counters.most_waiting =
      std::max(direction.counters.most_waiting, direction.queued + direction.on_the_way);
  if (happens(options_.faults.reset)) {
    cut();
    return false;
  }
  SimulatedPort own{.bandwidth = options_.bandwidth};
  SimulatedPort* const port = options_.out[from];
  const Instant through =
      std::max(own.pass(time_.now(), bytes), port ? port->pass(time_.now(), bytes) : time_.now());
  if (through == time_.now()) {
    travel(from, letter);
    return true;
  }
  direction.busy = true;
  time_.at(through, [this, from, letter, connection = connection_] {
    if (connection != connection_) return;
    directions_[from].busy = false;
    travel(from, letter);
    pump(from);
  });
  return true;
}

void SimulatedLink::travel(std::size_t from, const Sealed& letter) {
  const SimulatedFaults& faults = options_.faults;
  Direction& direction = directions_[from];
  Instant when = time_.now() + options_.latency + up_to(options_.jitter);
  if (happens(faults.reorder)) {
    when += up_to(faults.late);
  } else {
    if (happens(faults.delay)) when += up_to(faults.late);
    when = direction.last = std::max(when, direction.last);
  }
  const bool lost = happens(faults.lose);
  if (lost) ++direction.counters.lost;
  deliver(from, lost ? nullptr : letter, when, letter->size);
  if (happens(faults.repeat)) deliver(from, letter, when + up_to(faults.late), 0);
}

// `bytes`: that are not on their way any more from then on. The last of them is at the other end's
// port at `when`.
void SimulatedLink::deliver(std::size_t from, const Sealed& letter, Instant when,
                            std::size_t bytes) {
  time_.at(when, [this, from, letter, bytes, connection = connection_] {
    if (connection != connection_) return;
    SimulatedPort* const port = options_.in[1 - from];
    const Instant through = port == nullptr ? time_.now() : port->take_last(time_.now(), bytes);
    if (through == time_.now()) return arrive(from, letter, bytes);
    time_.at(through, [this, from, letter, bytes, connection] {
      if (connection == connection_) arrive(from, letter, bytes);
    });
  });
}

void SimulatedLink::arrive(std::size_t from, const Sealed& letter, std::size_t bytes) {
  directions_[from].on_the_way -= bytes;
  if (letter != nullptr) receive(1 - from, *letter);
  pump(from);
}

void SimulatedLink::receive(std::size_t to, const Letter& letter) {
  if (letter.message) return ends_[to].received(*letter.message);
  std::string bytes = letter.bytes;
  const bool is_damaged = happens(options_.faults.damage);
  if (is_damaged) bytes[random_.below(bytes.size())] ^= static_cast<char>(1 << random_.below(8));
  const Result<Message> message = decode(bytes, Stage::kPeer);
  CHECK(message.ok() != is_damaged)
      << (message.ok() ? "damage was not seen" : message.error().message);
  if (message.ok())
    ends_[to].received(message.value());
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
