// A network in one thread: messages arrive when a virtual clock says so, after a latency, jitter
// and the time that the bytes of their frames take. The same seed gives the same history. For tests
// and tools/simulate: the state machines of the table service, and other code driven by messages
// and instants, run on it as they do on links.
#pragma once

#include <functional>
#include <list>
#include <map>

#include "shoal/base/random.h"
#include "shoal/table/client.h"
#include "shoal/table/link/virtual_time.h"

namespace shoal::table {

// One direction of a process's network card, for all links that pass through it: one frame after
// the other, in the order in which they begin.
struct SimulatedPort {
  double bandwidth = 0;  // bytes a second; 0: no limit
  Instant free{};        // when what has begun is through
  // Counts of the frames that have left through it, or have left for it from elsewhere.
  std::uint64_t frames = 0, bytes = 0;
  // Begins a frame now, or when the port is free. Returns when it is through.
  Instant pass(Instant now, std::size_t size) {
    return bandwidth > 0 ? free = std::max(free, now) + time_of(size) : now;
  }
  // Takes the last byte of a frame, from a sender no slower. Returns when the frame is through. It
  // has been coming in for as long as its bytes take, unless another did.
  Instant take_last(Instant now, std::size_t size) {
    return bandwidth > 0 ? free = std::max(now, free + time_of(size)) : now;
  }

 private:
  Instant time_of(std::size_t size) const {
    return Instant(static_cast<std::int64_t>(static_cast<double>(size) / bandwidth * 1e9));
  }
};

struct SimulatedLinkOptions {
  // jitter: up to so much more, drawn for each frame.
  Instant latency = std::chrono::microseconds(50), jitter{};
  double bandwidth = 0;  // bytes a second, each way; 0: no limit
  // Bytes on their way at which no more leaves. One frame may exceed it.
  std::size_t window = 512 * 1024;
  // Payloads without an owner are copied when they leave. If not, they stay as they are until the
  // message has arrived: within a process, or where numbers do not matter.
  bool copies = true;
  // The ports of each end's process, beside the link's own bandwidth. They may be null, and outlive
  // the link.
  std::array<SimulatedPort*, 2> out{}, in{};
};

// The owner's functions at one end of a link.
struct SimulatedEnd {
  std::function<void(Message&&)> received;            // its payload has an owner, if it was copied
  std::function<std::optional<Message>()> next = {};  // as LinkOwner::next; may be empty
};

// A connection between two ends, 0 and 1, in order. Messages travel as they are, and take the time
// of the frames that would hold them (wire.h). Its random draws depend on `random` and the messages
// that pass.
class SimulatedLink {
 public:
  SimulatedLink(VirtualTime& time, const SimulatedLinkOptions& options, Random random,
                SimulatedEnd first, SimulatedEnd second)
      : time_(time),
        options_(options),
        random_(random),
        ends_{std::move(first), std::move(second)} {}
  SimulatedLink(const SimulatedLink&) = delete;

  // Sends before any message of next(); of the messages that wait the most urgent leaves first.
  void send(std::size_t from, Message message, Urgency urgency = {});
  void wake(std::size_t from);  // next() has something to say

 private:
  struct Letter {
    std::size_t from = 0, size = 0;  // the end that sent it; bytes of its frame
    Message message;
  };
  // A list, whose letters do not move: events hold places in them.
  using Letters = std::list<Letter>;
  struct Direction {
    std::multimap<Urgency, Message> queue;
    std::size_t on_the_way = 0;  // bytes
    bool busy = false;           // a frame is leaving
    Instant last{};              // arrival of the last frame
  };

  void leave(Letters::iterator letter);
  void travel(Letters::iterator letter);
  void arrive(Letters::iterator letter);

  VirtualTime& time_;
  const SimulatedLinkOptions options_;
  Random random_;
  const std::array<SimulatedEnd, 2> ends_;
  std::array<Direction, 2> directions_;
  Letters travelling_;  // that have begun to leave
};

}  // namespace shoal::table
