// The server's side of the table: keeps rows, merges pushes into them by the update rule, and
// answers reads when the scheme permits. A pure state machine: a message in, messages out. It has
// no socket, no thread and no clock, and is called by one thread at a time.
//
// Its promises, whatever is repeated, reordered or lost on the way:
// - An acknowledged push is merged exactly once. A Row for its clock + 1 or later acknowledges it.
// - A Row holds one version of the row, with all that the scheme promises to its reader and with
//   the reader's own pushes.
// - No message has an effect in a later generation. The plan of the next one comes when all pushes
//   of the last are merged or dropped, and replaces all rows; late messages are ignored.
// - A lockstep scheme's numbers are summed in the order of workers: the same pushes give the same
//   bits.
#pragma once

#include "shoal/table/shard_rows.h"

namespace shoal::table {

class Shard {
 public:
  // `maker` makes the plan's scheme, `codecs` makes its codecs.
  explicit Shard(int server, SchemeMaker maker = &SchemeSpec::make, CodecMaker codecs = make_codec)
      : maker_(std::move(maker)), keeps_{.server = server, .codecs = codecs} {}
  Shard(const Shard&) = delete;

  // Makes the shard count merges and leave numbers alone, for simulations of times. To be called
  // before the plan comes.
  void count_only() { keeps_.counts_only = std::make_unique<float[]>(kMaxRowFloats); }
  // Updates long rows with `parallel_for` from now on; if it is empty, on the calling thread.
  void share_out(ParallelFor parallel_for) { keeps_.parallel_for = std::move(parallel_for); }
  // Handles a worker's message (or the coordinator's NormTotal) and appends the messages to send.
  // The payload of a Push has an owner or stays as it is until the push is acknowledged; that of an
  // Init need not outlive the call. An error means that the peer broke the protocol, or pushed a
  // NaN: its connection is to end with the error, which names worker, row and clock. The message
  // then changed nothing.
  Status handle(int worker, const Message& message, Outbox& out);
  // Sets this server's number from the next plan on.
  void renumber(int server) { keeps_.server = server; }
  // Removes a worker that is lost without a Retire. Its last clock is the last that it pushed to
  // all rows of this server; its unmerged pushes of later clocks are dropped, and its messages are
  // refused.
  void leave(int worker, Outbox& out) {
    if (worker >= 0 && worker < workers() && !rows_->is_gone(worker)) rows_->leave(worker, out);
  }

  // Drops all that the worker has pushed and is not merged. The generation ends.
  void forget_pushes(int worker) {
    if (worker >= 0 && worker < workers()) rows_->forget_pushes(worker, 0);
  }

  // ---- second copies of rows ----
  // Handles a message of another server: an Update of rows that are copied here, or a Copied.
  Status hear_server(const Message& message, Outbox& out);
  // These are as in ShardRows.
  void send_updates(Outbox& out) const {
    if (rows_) rows_->send_updates(out);
  }
  void lose_server(int server, Outbox& out) {
    if (rows_) rows_->lose_server(server, out);
  }

  // Returns the row as it is, whatever the scheme lets workers read, in float32. Nothing if this
  // server has no such row.
  std::optional<RowMessage> look(RowId id) const {
    const ShardRow* row = rows_ ? rows_->find(id) : nullptr;
    if (row == nullptr) return std::nullopt;
    return RowMessage{
        .row = id, .version = row->version(), .payload = as_payload(row->numbers(Part::kWeights))};
  }
  // Returns whether there is a plan, and every own row has its weights.
  bool ready() const { return rows_ && rows_->is_ready(); }
  const Plan* plan() const { return rows_ ? &rows_->plan() : nullptr; }  // null before it came
  // Returns the worker's clock: the least of its pushes over all rows. For messages to people.
  Clock clock_of(int worker) const { return rows_ ? rows_->clock_of(worker) : 0; }
  const ShardCounters& counters() const { return keeps_.counters; }
  // Returns the counts of the worker since the start.
  PushCounts counts_of(int worker) const {
    const auto which = static_cast<std::size_t>(worker);
    return which < keeps_.counts.size() ? keeps_.counts[which] : PushCounts();
  }
  // Returns the bytes of rows, histories and contributions that wait.
  std::size_t bytes_held() const { return keeps_.spares.bytes() + (rows_ ? rows_->bytes() : 0); }

 private:
  Status handle_plan(const PlanMessage& message, Outbox& out);
  int workers() const { return rows_ ? rows_->plan().workers : 0; }

  const SchemeMaker maker_;
  ShardKeeps keeps_;
  std::unique_ptr<ShardRows> rows_;  // of the present generation; null before the first plan
};

}  // namespace shoal::table
