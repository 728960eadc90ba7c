// A simulated link with faults: messages may be lost, late, repeated, out of order or damaged, and
// the connection may break.
#pragma once

#include <memory>
#include <vector>

#include "shoal/table/link/simulated.h"

namespace shoal::table {

// Probabilities, for each frame by itself.
struct LinkFaults {
  double lose = 0;    // never arrives
  double repeat = 0;  // arrives once more, up to `late` later
  // The frame arrives up to `late` later; those behind it may overtake it.
  double reorder = 0;
  // One bit of it is wrong. Its receiver sees that and breaks the connection.
  double damage = 0;
  // The frame arrives up to `late` later, and those behind it after it.
  double delay = 0;
  // The connection breaks: all frames on their way and all that wait to leave are lost, both ways.
  double reset = 0;
  Instant late = std::chrono::milliseconds(50);
  // A broken connection is back after up to so long.
  Instant down = std::chrono::milliseconds(50);
};

struct UnreliableLinkOptions {
  SimulatedLinkOptions link{};  // its ports are not used
  LinkFaults faults{};
};

// The owner's functions at one end.
struct UnreliableEnd {
  std::function<void(Message&&)> received;            // as decoded from the bytes of its frame
  std::function<std::optional<Message>()> next = {};  // as SimulatedEnd::next
  // Called when the connection was lost and is back; may be empty.
  std::function<void()> up = {};
};

// A link with faults. Each connection is a SimulatedLink. Where a message comes out of that, faults
// happen to the bytes of its frame. Its random draws depend on `random` and the messages that pass.
class UnreliableLink {
 public:
  UnreliableLink(VirtualTime& time, const UnreliableLinkOptions& options, Random random,
                 UnreliableEnd first, UnreliableEnd second);
  UnreliableLink(const UnreliableLink&) = delete;

  // Sends before any message of next(), in order; lost while the link is down. The payload is
  // copied at once.
  void send(std::size_t from, Message message);
  void wake(std::size_t from) {  // next() has something to say
    if (up_) connections_.back()->wake(from);
  }
  // Breaks the connection now, as a reset does.
  void cut();

  struct Counters {
    std::uint64_t frames = 0, bytes = 0, lost = 0, resets = 0;
    std::size_t most_waiting = 0;
  };
  // Counts one direction: frames and bytes that left; the most bytes that waited to leave or were
  // on their way at one instant.
  Counters counters(std::size_t from) const;

 private:
  struct Direction {
    SimulatedPort port{};  // counts what leaves
    std::uint64_t requests = 0, lost = 0;
    std::size_t waiting = 0, most_waiting = 0;  // bytes that wait to leave or are on their way
    // The arrival of the last frame that keeps the order.
    Instant last{};
  };

  void connect();
  SimulatedEnd end(std::size_t side);
  std::optional<Message> next(std::size_t from);
  void wait(std::size_t from, const Message& message);
  void emerge(std::size_t from, const Message& message);
  void arrive(std::size_t from, std::string bytes);
  bool happens(double probability) { return probability > 0 && random_.unit() < probability; }
  Instant up_to(Instant most) {
    return Instant(static_cast<std::int64_t>(static_cast<double>(most.count()) * random_.unit()));
  }

  VirtualTime& time_;
  UnreliableLinkOptions options_;
  Random random_;
  const std::array<UnreliableEnd, 2> ends_;
  std::array<Direction, 2> directions_;
  // One after the other, of which the last counts: events of earlier ones still find them.
  std::vector<std::unique_ptr<SimulatedLink>> connections_;
  std::uint64_t resets_ = 0;
  bool up_ = true;
};

}  // namespace shoal::table
