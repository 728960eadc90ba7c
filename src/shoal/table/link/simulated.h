// A network in one thread: messages arrive when a virtual clock says so, after a latency, jitter
// and the time that their bytes take, and faulty as asked for. The same seed gives the same
// history. For tests and tools/simulate: the state machines of the table service, and whatever else
// is driven by messages and instants, run on it as they do on links.
#pragma once

#include <functional>
#include <list>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/table/client.h"
#include "shoal/table/link/virtual_time.h"

namespace shoal::table {

// Probabilities, of each frame by itself.
struct SimulatedFaults {
  double lose = 0;    // never arrives
  double repeat = 0;  // arrives once more, up to `late` later
  // arrives up to `late` later; those behind it may overtake it
  double reorder = 0;
  // one bit of it is wrong; seen by who receives it, who breaks the connection
  double damage = 0;
  // arrives up to `late` later, and those behind it after it
  double delay = 0;
  // the connection breaks: all on its way and all that waits to leave is lost, both ways
  double reset = 0;
  Instant late = std::chrono::milliseconds(50);
  // a broken connection is back after up to so long
  Instant down = std::chrono::milliseconds(50);
};

// One direction of a process's network card, for all links that pass through it: one frame after
// the other, in the order in which they begin.
struct SimulatedPort {
  double bandwidth = 0;  // bytes a second; 0: no limit
  Instant free{};        // when what has begun is through
  // A frame begins now, or when the port is free: when it is through.
  Instant pass(Instant now, std::size_t bytes) {
    return bandwidth > 0 ? free = std::max(free, now) + time_of(bytes) : now;
  }
  // The last byte of a frame is there, from a sender no slower: when it is through. It has been
  // coming in for as long as its bytes take, unless another did.
  Instant take_last(Instant now, std::size_t bytes) {
    return bandwidth > 0 ? free = std::max(now, free + time_of(bytes)) : now;
  }

 private:
  Instant time_of(std::size_t bytes) const {
    return Instant(static_cast<std::int64_t>(static_cast<double>(bytes) / bandwidth * 1e9));
  }
};

struct SimulatedLinkOptions {
  // jitter: up to so much more, drawn for each frame
  Instant latency = std::chrono::microseconds(50), jitter{};
  double bandwidth = 0;  // bytes a second, each way; 0: no limit
  // bytes on their way at which no more is taken from next(); one frame may exceed it
  std::size_t window = 512 * 1024;
  SimulatedFaults faults{};
  // of each end's process, beside the link's own bandwidth; may be null; they outlive the link
  std::array<SimulatedPort*, 2> out{}, in{};
  // Messages travel as they are and not as bytes, of which only the number counts: within a
  // process, or where numbers do not matter. Payloads without an owner stay as they are until the
  // message has arrived. Without faults but `lose` and those of time.
  bool as_messages = false;
};

// The owner's functions at one end of a link.
struct SimulatedEnd {
  // as decoded: its payload has an owner, unless sent as messages
  std::function<void(Message&&)> received;
  std::function<std::optional<Message>()> next = {};  // as LinkOwner::next; may be empty
  // the connection was lost and is back; may be empty
  std::function<void()> up = {};
};

// A connection between two ends, 0 and 1. In order, unless asked otherwise. Messages travel as
// their frames' bytes (wire.h), which are made when they are sent, or taken from next(): from then
// on nobody looks at their numbers. What it draws depends on `random` and the frames that pass.
class SimulatedLink {
 public:
  SimulatedLink(VirtualTime& time, const SimulatedLinkOptions& options, Random random,
                SimulatedEnd first, SimulatedEnd second);
  SimulatedLink(const SimulatedLink&) = delete;

  // before anything that next() would give, in order; lost while the link is down
  void send(std::size_t from, Message message);
  void wake(std::size_t from) { pump(from); }  // next() has something to say
  // breaks the connection now, as a reset does
  void cut();

  struct Counters {
    std::uint64_t frames = 0, bytes = 0, lost = 0, resets = 0;
    std::size_t most_waiting = 0;
  };
  // Of one direction: frames and bytes that left; the most bytes that waited to leave or were on
  // their way at one instant.
  const Counters& counters(std::size_t from) const { return directions_[from].counters; }

 private:
  struct Letter {
    std::string bytes;  // the frame; or
    std::optional<Message> message;
    std::size_t size = 0;  // of the frame; 0 of one that arrives again
    std::size_t from = 0;  // the end that sent it
    std::uint64_t connection = 0;
    bool is_lost = false;  // nothing arrives
  };
  // Letters that do not move: events hold places in them.
  using Letters = std::list<Letter>;
  struct Direction {
    Letters queue;
    std::size_t queued = 0, on_the_way = 0;  // bytes
    std::uint64_t requests = 0;
    bool busy = false;  // a frame is leaving
    // arrival of the last frame that keeps the order
    Instant last{};
    Counters counters;
  };

  Letter seal(Message message, std::size_t from);
  void pump(std::size_t from);
  void receive(std::size_t to, Letter& letter);
  bool leave(Letters::iterator letter);  // false if it broke the connection
  void travel(Letters::iterator letter);
  void deliver(Letters::iterator letter, Instant when);
  void arrive(Letters::iterator letter);
  // Forgets a letter of an earlier connection; false if it is of this one.
  bool forget(Letters::iterator letter);
  bool happens(double probability) { return probability > 0 && random_.unit() < probability; }
  Instant up_to(Instant most) {
    if (most.count() == 0) return {};
    return Instant(static_cast<std::int64_t>(static_cast<double>(most.count()) * random_.unit()));
  }

  VirtualTime& time_;
  const SimulatedLinkOptions options_;
  Random random_;
  const std::array<SimulatedEnd, 2> ends_;
  std::array<Direction, 2> directions_;
  Letters travelling_;  // that have begun to leave
  bool up_ = true;
  // counts; frames of an earlier one do not arrive
  std::uint64_t connection_ = 0;
};

}  // namespace shoal::table
