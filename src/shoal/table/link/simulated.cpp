#include "shoal/table/link/simulated.h"

#include <algorithm>

#include "shoal/table/wire.h"

namespace shoal::table {

void SimulatedLink::send(std::size_t from, Message message, Urgency urgency) {
  directions_[from].queue.emplace(urgency, std::move(message));
  wake(from);
}

void SimulatedLink::wake(std::size_t from) {
  Direction& direction = directions_[from];
  while (!direction.busy && direction.on_the_way < options_.window) {
    std::optional<Message> said;
    if (!direction.queue.empty())
      said = std::move(direction.queue.extract(direction.queue.begin()).mapped());
    else if (ends_[from].next)
      said = ends_[from].next();
    if (!said) return;
    const std::size_t size = frame_bytes(*said);
    travelling_.push_back({from, size, *std::move(said)});
    leave(std::prev(travelling_.end()));
  }
}

void SimulatedLink::leave(Letters::iterator letter) {
  const std::size_t from = letter->from, size = letter->size;
  if (Payload* const payload = payload_of(letter->message); payload && options_.copies)
    *payload = owned(*payload);
  directions_[from].on_the_way += size;
  for (SimulatedPort* const port : {options_.out[from], options_.in[1 - from]}) {
    if (port == nullptr) continue;
    ++port->frames;
    port->bytes += size;
  }
  SimulatedPort own{.bandwidth = options_.bandwidth};
  Instant through = own.pass(time_.now(), size);
  if (SimulatedPort* const port = options_.out[from])
    through = std::max(through, port->pass(time_.now(), size));
  if (through == time_.now()) return travel(letter);
  directions_[from].busy = true;
  time_.at(through, [this, letter] {
    const std::size_t from = letter->from;
    directions_[from].busy = false;
    travel(letter);
    wake(from);
  });
}

void SimulatedLink::travel(Letters::iterator letter) {
  Instant when = time_.now() + options_.latency;
  if (const auto most = static_cast<double>(options_.jitter.count()); most > 0)
    when += Instant(static_cast<std::int64_t>(most * random_.unit()));
  Instant& last = directions_[letter->from].last;
  when = last = std::max(when, last);
  // The last of the letter's bytes is at the other end's port.
  time_.at(when, [this, letter] {
    SimulatedPort* const port = options_.in[1 - letter->from];
    const Instant through =
        port == nullptr ? time_.now() : port->take_last(time_.now(), letter->size);
    if (through == time_.now()) return arrive(letter);
    time_.at(through, [this, letter] { arrive(letter); });
  });
}

void SimulatedLink::arrive(Letters::iterator letter) {
  const std::size_t from = letter->from;
  directions_[from].on_the_way -= letter->size;
  ends_[1 - from].received(std::move(letter->message));
  travelling_.erase(letter);
  wake(from);
}

}  // namespace shoal::table
