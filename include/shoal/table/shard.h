// A server's half of the tables: rows, their update rule, and who waits for what. A pure state
// machine: message in, messages out. It knows no socket, no thread and no time; whoever drives it
// calls it from one thread at a time.
//
// What it promises, whatever is repeated, reordered or lost on the way:
//   an acknowledged push is merged exactly once (its Row for clock + 1 or later is the
//   acknowledgement); a Row holds one version of the row, with all that the scheme promises to its
//   reader, and the reader's own pushes; nothing said in a generation has an effect in a later one:
//   the plan of the next generation comes when all pushes of the last are merged or dropped, takes
//   the place of all rows, and what still arrives of before is passed over; numbers of a lockstep
//   scheme are summed in the order of workers, so the same pushes give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/table/codec.h"
#include "shoal/table/messages.h"
#include "shoal/table/scheme.h"

namespace shoal::table {

// To whom a message goes.
struct Address {
  enum class Kind : std::uint8_t { kWorker, kServer, kCoordinator } kind = Kind::kWorker;
  int id = 0;  // worker or server
  bool operator==(const Address&) const = default;
};
struct Outgoing {
  Address to;
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
  std::vector<std::uint64_t> staleness;
};

// Of one worker's pushes to rows of this server.
struct PushCounts {
  // how many were merged so many versions after the one that they were computed from; the last: or
  // more
  std::vector<std::uint64_t> staleness{};
  std::uint64_t dropped = 0;  // as in ShardCounters
};

class Shard {
 public:
  // `maker` makes the scheme of the plan's words, `codecs` finds the codecs of its rows.
  explicit Shard(int server, SchemeMaker maker = make_scheme, CodecFinder codecs = find_codec);
  ~Shard();
  Shard(const Shard&) = delete;

  // From now on nothing is done with numbers, whose place may hold anything: for simulations that
  // ask for times alone. Before the plan.
  void count_only();
  // From now on work on long rows is shared out so; nothing: who calls handle() does all.
  void share_out(Crew crew);
  // Takes a worker's message (or, NormTotal, the coordinator's) and adds what is to be sent. Values
  // in a Push must stay as they are until the push is acknowledged, or carry their owner; those of
  // Init need not outlive the call. An error is a peer's that broke the protocol, or pushed a NaN:
  // its connection is to end with it. It names worker, row and clock, and changed nothing.
  Status handle(int worker, const Message& message, Outbox& out);
  // This server's number from the next plan on.
  void renumber(int server);
  // The worker is gone without a Retire: counts it out as from its last whole push, that is the
  // first clock of which some row of this server has none; what it pushed of that clock to other
  // rows, and is not merged, is dropped. Nothing more is taken from it.
  void leave(int worker, Outbox& out);

  // The row as it is, whatever the scheme lets workers read; for those who look on. Nothing if this
  // server has no such row.
  std::optional<RowMessage> look(RowId row) const;
  std::optional<Version> version_of(RowId row) const;
  bool ready() const;        // planned, and every own row has its weights
  const Plan* plan() const;  // null before it came
  // the least of its pushes over all rows; for messages to people
  Clock clock_of(int worker) const;
  ShardCounters counters() const;
  PushCounts counts_of(int worker) const;  // since the start
  std::size_t bytes_held() const;          // rows, histories and contributions that wait

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal::table
