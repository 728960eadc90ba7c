// The worker's side of the table: keeps pushes until they are acknowledged, knows which rows are
// waited for, and says what is to be sent next. A pure state machine like the shard: it has no
// socket, no thread and no clock. TableOverTcp drives it between the solver's thread and the links;
// tests drive it over a simulated network.
//
// The client asks again (Get) for what a link may have lost, and sends a push again where the
// server says NeedPush. It ignores messages of earlier generations than its plan's. Pushes and
// reads leave in the order of Row::priority, smallest first, whatever the order of the calls.
#pragma once

#include "shoal/table/codec.h"
#include "shoal/table/messages.h"
#include "shoal/table/pacer.h"

namespace shoal::table {

// The order of sending. kArrival (FIFO) exists for comparison.
enum class Order { kPriority, kArrival };

struct ClientOptions {
  int worker = 0;
  Order order = Order::kPriority;
  // A row is asked for again after so long without an answer; doubled each time, up to 16 times.
  std::chrono::milliseconds retry{2000};
  CodecFinder codecs = find_codec;
};

// Counts since the start of how stale pushes and reads were: how often 0, 1, 2 ...; the last: or
// more.
struct StalenessCounts {
  static constexpr std::size_t kClasses = kStalenessClasses;
  // versions that others made of a row between the read that a push was computed from and its
  // answer
  std::array<std::uint64_t, kClasses> pushes{};
  // clocks that the reader of a row was ahead of the slowest worker
  std::array<std::uint64_t, kClasses> reads{};
  // pushes that had nothing in them, or whose answer shows that they were not merged
  std::uint64_t drops = 0;
};

class Client {
 public:
  // `destination(row, part)` returns the memory for the numbers of an answer: row.length floats
  // that no other code looks at until the row has arrived.
  Client(const ClientOptions& options, const Plan& plan,
         std::function<std::span<float>(RowId, Part)> destination);
  ~Client();
  Client(const Client&) = delete;

  // ---- the worker's side ----
  // Sends the push and asks for the row at push.clock + 1. `push` comes with a kFloat32 payload,
  // which stays as it is until the row arrived. Client encodes it in the row's codec, once: a push
  // that is sent again has the same bytes. Client fills in `base` and `generation`.
  void push(Push push, Instant now);
  // Asks for the row at `clock` (for histories: whatever there is). Asked again while it is waited
  // for, it changes nothing.
  void get(RowId row, Clock clock, Part part, Instant now);
  // All answers asked for so far have come.
  bool arrived(RowId row) const;
  std::size_t waiting() const;  // rows that have not arrived

  // ---- the network's side ----
  // Returns where the `bytes` bytes of this answer's payload are to be written before take() is
  // called with it: in the row's destination if they are its numbers, else in memory that becomes
  // the payload's. Empty if the answer is not waited for (read and forget it) or has not that many
  // bytes. Only the answer to what was sent last of this row and part is waited for, until it has
  // come once.
  std::span<std::byte> place(RowMessage& row, std::size_t bytes) const;
  // Handles a message of a server. Returns true if a row arrived. The numbers of a Row are copied
  // unless they are in their destination already. An error means that the server broke the
  // protocol.
  Result<bool> take(int server, const Message& message, Instant now);
  // Returns the most urgent message for `server`, if any. To be called when the link can take
  // another; the message counts as sent. A push that is sent again owns its payload: the answer to
  // the first may come, and the worker go on, while a link still reads the second.
  std::optional<Message> next(int server);
  // The link to `server` was lost and is up again: asks anew for all that was sent and not
  // acknowledged.
  void link_up(int server, Instant now);
  // Asks again for rows that are overdue. Returns when to call it next; Instant::max() while the
  // client waits for nothing.
  Instant on_time(Instant now);

  // Of this client's pushes; shards count reads.
  const StalenessCounts& staleness() const;

  // The row that has been waited for longest, for messages to people.
  struct Overdue {
    RowId row = 0;
    int server = 0;
    Clock clock = 0;
    Instant since{};
  };
  std::optional<Overdue> overdue() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal::table
