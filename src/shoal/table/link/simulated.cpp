#include "simulated.h"

#include <algorithm>
#include <utility>

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

SimulatedLink::SimulatedLink(VirtualTime& time, const SimulatedLinkOptions& options, Random random, SimulatedEnd first, SimulatedEnd second)
    : time_(time), options_(options), random_(random), ends_{std::move(first), std::move(second)} {}

SimulatedLink::Bytes SimulatedLink::frame_of(const Message& message, Direction& direction) {
  const Frame frame = encode(message, ++direction.requests);
  const auto numbers = std::as_bytes(frame.values.data);
  return std::make_shared<const std::string>(frame.head + std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size()));
}

void SimulatedLink::send(int from, const Message& message) {
  if (!up_) return;
  Direction& direction = directions_[static_cast<std::size_t>(from)];
  direction.queue.push_back(frame_of(message, direction));
  direction.queued += direction.queue.back()->size();
  direction.counters.most_waiting = std::max(direction.counters.most_waiting, direction.queued + direction.on_the_way);
  pump(from);
}

void SimulatedLink::pump(int from) {
  Direction& direction = directions_[static_cast<std::size_t>(from)];
  while (up_ && !direction.busy && direction.on_the_way < options_.window) {
    Bytes frame;
    if (!direction.queue.empty()) {
      frame = std::move(direction.queue.front());
      direction.queue.pop_front();
      direction.queued -= frame->size();
    } else if (const auto& next = ends_[static_cast<std::size_t>(from)].next) {
      if (const std::optional<Message> said = next()) frame = frame_of(*said, direction);
    }
    if (frame == nullptr || !leave(from, frame)) return;
  }
}

bool SimulatedLink::leave(int from, const Bytes& frame) {
  Direction& direction = directions_[static_cast<std::size_t>(from)];
  const std::size_t bytes = frame->size();
  ++direction.counters.frames;
  direction.counters.bytes += bytes;
  direction.on_the_way += bytes;
  direction.counters.most_waiting = std::max(direction.counters.most_waiting, direction.queued + direction.on_the_way);
  if (happens(options_.faults.reset)) {
    cut();
    return false;
  }
  if (options_.bandwidth <= 0) {
    travel(from, frame);
    return true;
  }
  direction.busy = true;
  const Instant takes(static_cast<std::int64_t>(static_cast<double>(bytes) / options_.bandwidth * 1e9));
  time_.after(takes, [this, from, frame, connection = connection_] {
    if (connection != connection_) return;
    directions_[static_cast<std::size_t>(from)].busy = false;
    travel(from, frame);
    pump(from);
  });
  return true;
}

void SimulatedLink::travel(int from, const Bytes& frame) {
  const SimulatedFaults& faults = options_.faults;
  Direction& direction = directions_[static_cast<std::size_t>(from)];
  Instant when = time_.now() + options_.latency + up_to(options_.jitter);
  if (happens(faults.reorder)) {
    when += up_to(faults.late);
  } else {
    if (happens(faults.delay)) when += up_to(faults.late);
    when = direction.last = std::max(when, direction.last);
  }
  const bool lost = happens(faults.lose);
  if (lost) ++direction.counters.lost;
  deliver(from, lost ? nullptr : frame, when, frame->size());
  if (happens(faults.repeat)) deliver(from, frame, when + up_to(faults.late), 0);
}

// `bytes`: that are not on their way any more from then on.
void SimulatedLink::deliver(int from, const Bytes& frame, Instant when, std::size_t bytes) {
  time_.at(when, [this, from, frame, bytes, connection = connection_] {
    if (connection != connection_) return;
    directions_[static_cast<std::size_t>(from)].on_the_way -= bytes;
    if (frame != nullptr) receive(1 - from, *frame);
    pump(from);
  });
}

void SimulatedLink::receive(int to, const std::string& frame) {
  std::string bytes = frame;
  const bool is_damaged = happens(options_.faults.damage);
  if (is_damaged) bytes[random_.below(bytes.size())] ^= static_cast<char>(1 << random_.below(8));
  const Result<Message> message = decode(bytes, Stage::kPeer);
  CHECK(message.ok() != is_damaged) << (message.ok() ? "damage was not seen" : message.error().message);
  if (message.ok()) ends_[static_cast<std::size_t>(to)].received(message.value());
  else cut();
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
