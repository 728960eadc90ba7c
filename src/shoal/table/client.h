// The worker's side of the table: keeps pushes until they are acknowledged, knows which rows are
// awaited, and returns the messages to send next. A pure state machine like the shard: it has no
// socket, no thread and no clock. TableOverTcp drives it between the solver's thread and the links;
// tests drive it over a simulated network.
//
// After a link broke, the client asks again (Get) for answers that may be lost, and sends a push
// again where the server answers NeedPush. It ignores messages of earlier generations than its
// plan's. Pushes and reads leave in the order of Urgency, whatever the order of the calls.
#pragma once

#include <optional>
#include <queue>
#include <unordered_map>

#include "shoal/table/codec_set.h"
#include "shoal/table/own_rows.h"
#include "shoal/table/table.h"

namespace shoal::table {

struct ClientOptions {
  int worker = 0;
  Order order = Order::kPriority;
  CodecMaker codecs = make_codec;
  // Returns the memory for the state of the codec of a row's pushes, of the length given, which
  // outlives the client; none: the client has its own, of zeros.
  CodecStates states{};
};

class Client {
 public:
  // `destinations(row, part)` returns the place for the numbers of an answer.
  Client(const ClientOptions& options, const Plan& plan,
         std::function<Destination(RowId, Part)> destinations);
  Client(const Client&) = delete;

  // ---- the worker's side ----
  // Sends the push and asks for the row at push.clock + 1. `push` comes with a kFloat32 payload,
  // which stays as it is until the row arrived. Client encodes it in the row's codec, once: a push
  // that is sent again has the same bytes. Numbers that are not finite leave as they are, and the
  // codec forgets what it has left out so far. Client fills in `base` and `generation`.
  void push(Push push, Instant now);
  // Asks for the row at `clock` (for histories: as they are). A repeated call while the row is
  // awaited changes nothing.
  void get(RowId row, Clock clock, Part part, Instant now);
  // Asks once more for the row, if its last push is not answered yet: see Table::hurry().
  void hurry(RowId row);
  // Returns whether all answers asked for so far have come.
  bool arrived(RowId row) const;
  // Returns the version of the weights that came last; before any, the plan's start. The row is an
  // own row.
  Version version(RowId row) const { return versions_[own_.find(row)]; }

  // ---- the network's side ----
  // Returns where the `bytes` bytes of this answer's payload are to be written before take() is
  // called with it: in the row's destination if they are its numbers, else in memory that becomes
  // the payload's. Empty if the answer is not waited for (read and forget it) or has not that many
  // bytes. Only the answer to what was sent last of this row and part is waited for, until it has
  // come once.
  std::span<std::byte> place(RowMessage& row, std::size_t bytes) const;
  // Returns whether the answer is expected, and its payload may stay in place as long as its owner
  // is held. Then place() need not be called.
  bool keeps(const RowMessage& row) const;
  // Handles a message of a server. Returns true if a row arrived. The numbers of a Row are copied
  // unless they are in their destination already. An error means that the server broke the
  // protocol.
  Result<bool> take(int server, const Message& message);
  // Returns the most urgent message for `server`, if any. To be called when the link can take
  // another; the message counts as sent. A push that is sent again owns its payload: the answer to
  // the first may come, and the worker go on, while a link still reads the second.
  std::optional<Message> next(int server);
  // Asks anew for all messages that were sent and not acknowledged: the link to `server` was lost
  // and is up again.
  void link_up(int server);
  // Goes on without a server that is lost: the server heir_of(s) answers from now on for the rows
  // that server s of the plan had, and gets again what was not acknowledged. If that is kNoServer,
  // the rows stay as they were read last, and pushes of them are dropped: they have arrived at
  // once, and are returned. Returns an error if such a row was never read, unless
  // `may_be_unread`: its numbers do not count then, or are what the worker had before it read.
  static constexpr int kNoServer = -1;
  Result<std::vector<RowId>> lose_server(int server, const std::function<int(int)>& heir_of,
                                         bool may_be_unread = false);
  // Returns the server that has the row now, or kNoServer. A row that one worker writes is lost
  // with its server: it never arrives.
  int server_of(RowId row) const {
    const std::uint16_t planned = rows_[row].server;
    return is_written(row) && routes_[planned] != planned ? kNoServer : routes_[planned];
  }
  bool is_written(RowId row) const { return rows_[row].writer != kEveryWorker; }

  // Returns the bytes that codecs of this worker's pushes keep between them.
  std::size_t state_bytes() const;

  // Returns the staleness of this client's pushes. Shards count reads.
  const StalenessCounts& staleness() const { return staleness_; }

  // The row that has been waited for longest, for messages to people.
  struct Overdue {
    RowId row = 0;
    int server = 0;
    Clock clock = 0;
    Instant since{};
  };
  std::optional<Overdue> overdue() const;

 private:
  // A part of a row, which is waited for, queued and timed: the row's number in own_ * kParts +
  // part.
  using Slot = std::uint32_t;
  static constexpr std::size_t kParts = 4;

  enum class Say : std::uint8_t { kNothing, kPush, kGet };

  // The wait for one part of one row.
  struct Wait {
    Clock clock = -1;  // that the answer will carry
    bool waiting = false;
    bool asked = false;       // a link has taken the push or the read at least once
    bool hurries = false;     // asks again behind each push
    Say say = Say::kNothing;  // when its turn in its server's queue, under `ticket`, comes
    std::uint64_t ticket = 0;
    Instant since{};
  };

  // A slot in line: the most urgent one first, of those the row with the smallest id.
  struct Turn {
    Urgency urgency{};
    RowId row = 0;
    std::uint64_t ticket = 0;
    Slot slot = 0;
    auto operator<=>(const Turn&) const = default;
  };

  // Returns the slot of a part of an own row.
  Slot slot_of(RowId row, Part part) const {
    return static_cast<Slot>(own_.find(row) * kParts + static_cast<std::size_t>(part));
  }
  bool is_own(RowId row) const { return own_.find(row) != OwnRows::kNone; }
  RowId row_of(Slot slot) const { return own_[slot / kParts]; }
  static Part part_of(Slot slot) { return static_cast<Part>(slot % kParts); }

  void start(Slot slot, Clock clock, Say what, Instant now);
  void say(Slot slot, Say what);
  void encode(Push& push);
  const Codec& codec_of(const RowMessage& row) const;
  bool is_change(const RowMessage& row) const;
  void arrive(Slot slot, Version version);
  bool expects(const RowMessage& row) const;
  bool expects_numbers(const RowMessage& row) const;
  Result<bool> handle_row(int server, const RowMessage& message);
  Result<bool> handle_need(int server, const NeedPush& message);
  Status check_row(int server, RowId row, const char* name) const;
  Message message_of(Slot slot) const;

  const ClientOptions options_;
  const Generation generation_;
  const Rows rows_;
  const OwnRows own_;  // that this worker writes or reads
  const std::function<Destination(RowId, Part)> destinations_;
  std::vector<Wait> waits_;                  // by slot
  std::vector<std::optional<Push>> pushes_;  // by own row; those not acknowledged
  std::vector<Version> versions_;            // by own row: last read
  const CodecSet codecs_;
  // The states of the codecs of pushes, of rows whose codec keeps one; memory for them, if nobody
  // else has it.
  std::unordered_map<RowId, CodecState> states_;
  std::vector<std::vector<float>> own_states_;
  // By server of the plan: the one that has its rows now, or kNoServer.
  std::vector<int> routes_;
  std::vector<bool> known_;  // by own row: it was read
  // Queues by server.
  std::vector<std::priority_queue<Turn, std::vector<Turn>, std::greater<>>> queues_;
  std::uint64_t tickets_ = 0;
  StalenessCounts staleness_;
};

}  // namespace shoal::table
