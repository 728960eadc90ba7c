// The server's side of the table: keeps rows, merges pushes into them by the update rule, and
// answers reads when the scheme permits. A pure state machine: a message in, messages out. It has
// no socket, no thread and no clock, and is called by one thread at a time.
//
// Its promises, whatever is repeated, reordered or lost on the way:
// - An acknowledged push is merged exactly once. A Row for its clock + 1 or later acknowledges it.
// - A Row holds one version of the row, with all that the scheme promises to its reader and with
// the
//   reader's own pushes.
// - No message has an effect in a later generation. The plan of the next one comes when all pushes
//   of the last are merged or dropped, and replaces all rows; late messages are ignored.
// - A lockstep scheme's numbers are summed in the order of workers: the same pushes give the same
//   bits.
#pragma once

#include "shoal/table/codec.h"
#include "shoal/table/messages.h"
#include "shoal/table/scheme.h"

namespace shoal::table {

inline constexpr int kCoordinator = -1;
struct Outgoing {
  int to = 0;  // a worker, or kCoordinator
  Message message;
};
using Outbox = std::vector<Outgoing>;

struct ShardCounters {
  // updates; pushes in them; pushes thrown away, left-out iterations among them
  std::uint64_t merges = 0, contributions = 0, dropped = 0;
  std::uint64_t repeated = 0;  // pushes that were there already
  // pushes before an earlier one of their worker: asked for again, not kept
  std::uint64_t early = 0;
  std::uint64_t refused = 0;  // pushes with a NaN or an infinity
  std::uint64_t parked = 0;   // reads that had to wait
  std::uint64_t late = 0;     // messages of an earlier generation
  // how many reads were so many clocks ahead of the slowest worker; the last: or more
  Staleness staleness{};
};

// Of one worker's pushes to rows of this server.
struct PushCounts {
  // how many were merged so many versions after the one that they were computed from; the last: or
  // more
  std::vector<std::uint64_t> staleness{};
  std::uint64_t dropped = 0;  // as in ShardCounters
};

struct ShardKeeps;
class ShardRows;

class Shard {
 public:
  // `maker` makes the scheme of the plan's words, `codecs` finds the codecs of its rows.
  explicit Shard(int server, SchemeMaker maker = make_scheme, CodecFinder codecs = find_codec);
  ~Shard();
  Shard(const Shard&) = delete;

  // The shard counts merges and leaves numbers alone, for simulations of times. To be called before
  // the plan comes.
  void count_only();
  // Long rows are updated with `parallel_for` from now on; if it is empty, on the calling thread.
  void share_out(ParallelFor parallel_for);
  // Handles a worker's message (or the coordinator's NormTotal) and appends the messages to send.
  // The payload of a Push has an owner or stays as it is until the push is acknowledged; that of an
  // Init need not outlive the call. An error means that the peer broke the protocol, or pushed a
  // NaN: its connection is to end with the error, which names worker, row and clock. The message
  // then changed nothing.
  Status handle(int worker, const Message& message, Outbox& out);
  // Sets this server's number from the next plan on.
  void renumber(int server);
  // The worker is lost without a Retire. Its last clock is the last that it pushed to all rows of
  // this server; its unmerged pushes of later clocks are dropped, and its messages are refused.
  void leave(int worker, Outbox& out);

  // The row as it is, whatever the scheme lets workers read, in float32. Nothing if this server has
  // no such row.
  std::optional<RowMessage> look(RowId row) const;
  bool ready() const;        // planned, and every own row has its weights
  const Plan* plan() const;  // null before it came
  // The worker's clock: the least of its pushes over all rows. For messages to people.
  Clock clock_of(int worker) const;
  ShardCounters counters() const;
  PushCounts counts_of(int worker) const;  // since the start
  std::size_t bytes_held() const;          // rows, histories and contributions that wait

 private:
  Status handle_plan(const PlanMessage& message, Outbox& out);
  int workers() const;

  const SchemeMaker maker_;
  const std::unique_ptr<ShardKeeps> keeps_;
  std::unique_ptr<ShardRows> rows_;  // of the present generation; null before the first plan
};

}  // namespace shoal::table
