// The rows of a shard in one generation: pushes, reads, merges, a clip of the norm, and workers
// that end or are lost.
#pragma once

#include "shoal/table/clip_part.h"
#include "shoal/table/codec_set.h"
#include "shoal/table/own_rows.h"
#include "shoal/table/row_copies.h"
#include "shoal/table/shard_row.h"
#include "shoal/table/table.h"
#include "shoal/table/written_row.h"

namespace shoal::table {

// Counts of one worker's pushes to rows of this server.
struct PushCounts {
  // The pushes that were merged so many versions after the one that they were computed from; the
  // last counts more, too.
  std::vector<std::uint64_t> staleness{};
  std::uint64_t dropped = 0;  // as in ShardCounters
};

// The part of a shard that outlives generations.
struct ShardKeeps {
  int server = 0;
  CodecMaker codecs;
  // Merges are only counted: the memory of all rows, in which no number counts.
  std::unique_ptr<float[]> counts_only{};
  ParallelFor parallel_for{};
  Spares spares{};
  ShardCounters counters{};
  std::vector<PushCounts> counts{};  // by worker
};

class ShardRows {
 public:
  ShardRows(const Plan& plan, std::unique_ptr<Scheme> scheme, const InPlace& in_place,
            ShardKeeps& keeps);

  const Plan& plan() const { return plan_; }
  bool is_ready() const { return without_weights_ == 0; }
  bool is_gone(int worker) const { return gone_[worker]; }
  const ShardRow* find(RowId row) const { return at<ShardRow>(row); }
  Clock clock_of(int worker) const {
    Clock least = learning_.empty() ? plan_.start : kUnbounded;
    for (const ShardRow* row : learning_) least = std::min(least, row->pushed(worker));
    return least;
  }
  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const OwnRow& row : rows_)
      std::visit([&](const auto& one) { bytes += one->bytes(); }, row);
    return bytes;
  }
  // Returns "" if all pushes are in the rows, or were dropped; else what keeps the generation from
  // its end.
  std::string why_not_over() const;

  // Says that all rows have their weights, if they have.
  void begin(Outbox& out);
  Status init(const Init& init, Outbox& out);
  Status push(int worker, const Push& push, Outbox& out);
  Status get(int worker, const Get& get, Outbox& out);
  Status retire(int worker, const Retire& retire, Outbox& out);
  Status total(const NormTotal& total, Outbox& out);
  void leave(int worker, Outbox& out);
  // Drops what the worker has pushed from clock `end` on and is not merged, and decisions that wait
  // for a norm.
  void forget_pushes(int worker, Clock end) {
    for (ShardRow* row : learning_) keeps_.counters.dropped += row->forget(worker, end);
    for (ClipPart& part : clip_parts_) part.forget();
  }

  // ---- second copies ----
  // Handles an Update of the server whose rows are copied here, or a Copied of the one that has
  // copies of these.
  Status hear_server(const Message& message, Outbox& out);
  // Sends all updates again that the copies do not have: the connection broke, and is back.
  void send_updates(Outbox& out) const;
  // Goes on without a server that is lost: its rows that are copied here are this server's from now
  // on, and copies that it had are no longer waited for.
  void lose_server(int server, Outbox& out);

 private:
  // A row that all workers push, or that one of them writes.
  using OwnRow = std::variant<std::unique_ptr<ShardRow>, std::unique_ptr<WrittenRow>>;

  Status check_push(int worker, const ShardRow& row, const Push& push) const;
  Result<Values> numbers_of(int worker, const Push& push) const;
  Status check_finite(int worker, const Push& push, const Values& numbers);
  // Returns the row. `what` are words for an error.
  Result<ShardRow*> row_of(RowId row, const auto&... what) const;
  // Returns null for rows of other servers, and of the other kind.
  template <class T>
  T* at(RowId row) const {
    const std::size_t number = own_.find(row);
    if (number == OwnRows::kNone) return nullptr;
    const auto* found = std::get_if<std::unique_ptr<T>>(&rows_[number]);
    return found ? found->get() : nullptr;
  }
  WrittenRow* written(RowId row) const { return at<WrittenRow>(row); }
  Status push_written(int worker, const Push& push, Outbox& out);
  // Takes a worker back that had stopped, and for which others did not wait.
  void come_back(int worker, Clock clock) {
    Clock& end = ends_[worker];
    if (clock < end) return;
    end = kUnbounded;
    for (ShardRow* row : learning_) row->end_at(worker, end);
  }
  // Makes all merges that the row allows, then all reads.
  void advance(ShardRow& row, Outbox& out) {
    merge(row, out);
    answer_readers(row, out);
  }
  bool merge(ShardRow& row, Outbox& out);
  void answer_readers(ShardRow& row, Outbox& out) {
    for (int worker = 0; worker < plan_.workers; ++worker) answer_reader(row, worker, out);
  }
  void answer_reader(ShardRow& row, int worker, Outbox& out);
  void ask_again(ShardRow& row, int worker, Clock clock, Outbox& out);
  void apply(ShardRow& row, const Merge& merge, Outbox& out);
  // Returns the scale of a rule's gradients: that of a merge has the clip, and this in it.
  double gradient_scale() const { return plan_.clip < 0 ? 1.0 / plan_.iter_size : 1; }
  ClipPart clip_part(int server) const;
  void send_norm_if_complete(Outbox& out);

  ShardKeeps& keeps_;
  const Plan plan_;
  const CodecSet codecs_;
  const std::unique_ptr<Scheme> scheme_;
  RowCopies copies_;
  const OwnRows own_;                             // of this server, and copies that it has
  std::vector<OwnRow> rows_;                      // by own row
  std::vector<ShardRow*> learning_;               // own rows that learn, by id
  std::size_t shared_ = 0, without_weights_ = 0;  // rows that all workers push
  std::vector<Clock> ends_;                       // by worker: no push from there on
  std::vector<bool> gone_;                        // by worker
  std::vector<ClipPart> clip_parts_;              // this server's, and a lost one's
};

}  // namespace shoal::table
